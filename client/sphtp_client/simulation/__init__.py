"""Spheres in a box, cut into slabs, one slab per peer: the verb ``sphtp client``.

Read in this order. ``scenario`` and ``scenario_file`` define what is simulated, ``state`` and
``initial_conditions`` the spheres at the start. ``forces`` computes how spheres push each other.
``slabs`` cuts the box and moves the spheres of one slab in a step. ``run`` exchanges messages with
the neighbours in each step; ``peer_links`` and ``peer`` do so over channels. ``reports`` are the
output of a process, and ``frames`` are published for watchers. ``observables`` computes energy and
momentum for both.
"""
