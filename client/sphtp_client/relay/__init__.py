"""A bad network for real sockets: the verb ``sphtp relay``.

``relay`` moves datagrams between sockets. ``impairment`` loses, delays and duplicates them with the
links of ``sphtp.testing``, like the simulated network.
"""
