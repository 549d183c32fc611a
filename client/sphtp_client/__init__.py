"""What runs on SphTP: spheres in a box, cut into slabs, one slab per peer; and what goes with them.

``simulation``  the spheres: a scenario, slabs, forces, and what peers exchange (``sphtp client``)
``cluster``     servers and clients as processes on this machine (``sphtp cluster``)
``watch``       a simulation as whoever takes no part in it sees it (``sphtp watch``)
``relay``       a bad network for real sockets (``sphtp relay``)

Beside them is what several share: ``options`` and ``connection``, from a command line to a client,
and ``program``, exit codes and how a program is stopped.
"""
