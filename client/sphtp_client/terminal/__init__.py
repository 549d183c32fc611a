"""The verbs for a terminal: the peers of a cluster, and a message, topic or request by hand.

Each is a client of the cluster for a moment. ``connection`` has their options, their opening and
their end; ``values`` makes values of JSON, and JSON of values. ``doctor`` looks for faults of a
set-up.
"""
