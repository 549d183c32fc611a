"""Spheres in a box, divided into slabs, one slab per peer: the verb ``sphtp client``.

Read the modules in this order. ``scenario`` and ``scenario_file`` define the content of a
simulation, ``state`` and ``initial_conditions`` its spheres at the start. ``forces`` computes the
forces between spheres. ``slabs`` divides the box, and moves the spheres of one slab in a step.
``run`` exchanges messages with the neighbours in each step; ``peer_links`` and ``peer`` do so over
channels. ``reports`` defines the output of a process, and ``frames`` the states that are published
for watchers. ``observables`` computes energy and momentum for both.
"""
