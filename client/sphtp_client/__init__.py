"""Programs on SphTP: a simulation of spheres in a box, one slab per peer, and tools for clusters.

``simulation``  the spheres: a scenario, slabs, forces, and the exchange of peers (``sphtp client``)
``cluster``     servers and clients as processes, here or placed by an engine (``sphtp cluster``)
``run``         servers and programs that a file describes (``sphtp run``)
``manifest``    a cluster for Kubernetes (``sphtp manifest``)
``watch``       a view of a running simulation from outside (``sphtp watch``)
``top``         the activity of nodes, and the causes of waiting (``sphtp top``)
``doctor``      the faults of a machine and a cluster (``sphtp doctor``)
``terminal``    ``sphtp peers``, ``ping``, ``request``, ``pub``, ``sub`` and ``completion``
``recording``   ``sphtp record``, ``replay`` and ``convert``
``plot``        pictures of logs and recordings (``sphtp plot``)
``relay``       a bad network for real sockets (``sphtp relay``)

Several of these share three modules. ``options`` and ``connection`` make a client from a command
line; ``program`` has the exit codes and the reaction to signals.
"""
