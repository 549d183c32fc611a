"""The layer that performs: sockets, tasks and clocks on Trio, around `sphtp.core`.

A module here owns one kind of resource. It passes bytes and the time to an object of the core, and
performs the outputs of that object's ``poll_*`` methods. ``loop`` decides when a node waits; no
other module decides anything.
"""
