"""The wing that performs: sockets, tasks and clocks on Trio, around the machines of `sphtp.core`.

A module here owns one kind of resource and decides nothing: it hands bytes and the time to a
machine, and does what the machine's ``poll_*`` methods ask for.
"""
