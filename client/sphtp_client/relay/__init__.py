"""A bad network for real sockets: the verb ``sphtp relay``.

``relay`` moves datagrams between sockets. ``impairment`` decides which of them are lost, delayed or
doubled, with the links of ``sphtp.testing``, as on the simulated network.
"""
