"""The verb ``sphtp doctor``: the faults of a set-up, each with a command against it.

``facts`` is the plain description of a machine and a cluster. ``findings`` judges facts, and
performs nothing. ``collection`` collects facts from the system, and from a cluster as its client.
"""
