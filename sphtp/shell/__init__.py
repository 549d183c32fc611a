"""The layer that performs: sockets, tasks and clocks on Trio, around `sphtp.core`.

A module here owns one kind of resource. It passes bytes and the time to an object of the core, and
performs the outputs of that object's ``poll_*`` methods. The shell makes one kind of decision:
``loop`` decides how a node shares the processor with the program.
"""
