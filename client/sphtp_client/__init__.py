"""Programs on SphTP: a simulation of spheres in a box, one slab per peer, and tools for it.

``simulation``  the spheres: a scenario, slabs, forces, and what peers exchange (``sphtp client``)
``cluster``     servers and clients as processes, here or placed by an engine (``sphtp cluster``)
``manifest``    a cluster for Kubernetes (``sphtp manifest``)
``watch``       a view of a running simulation from outside (``sphtp watch``)
``relay``       a bad network for real sockets (``sphtp relay``)

Several of these share three modules. ``options`` and ``connection`` make a client from a command
line; ``program`` has the exit codes and the reaction to signals.
"""
