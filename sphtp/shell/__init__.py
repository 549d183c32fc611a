"""The layer that performs: sockets, tasks and clocks on Trio, around `sphtp.core`.

A module here owns one kind of resource. It hands bytes and the time to an object of the core, and
does what that object's ``poll_*`` methods ask for. ``loop`` decides when a node waits; no other
module decides anything.
"""
