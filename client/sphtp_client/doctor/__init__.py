"""The verb ``sphtp doctor``: the faults of a machine and a cluster, each with a remedy.

``facts`` defines the description of a machine and a cluster. ``collection`` collects facts from the
system, and from a cluster as its client. ``findings`` judges facts, without I/O.
"""
