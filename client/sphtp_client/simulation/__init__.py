"""Spheres in a box, cut into slabs, one slab per peer: the verb ``sphtp client``.

In the order in which to read: ``scenario`` and ``scenario_file`` say what is simulated, ``state``
and ``initial_conditions`` with which spheres it begins, ``forces`` how they push each other,
``slabs`` how the box is cut and what one slab does in a step, ``run`` how a slab steps among its
neighbours. ``peer_links`` and ``peer`` do that over channels. ``reports`` is what a process tells,
``frames`` what it publishes for watchers, ``observables`` energy and momentum for both.
"""
