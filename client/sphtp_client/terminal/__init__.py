"""The verbs for a terminal: ``peers``, ``ping``, ``request``, ``pub``, ``sub`` and ``completion``.

All but ``completion`` register as a client of the cluster for their run. ``connection`` has their
options, their connection and their exit; ``values`` converts JSON to values and back.
"""
