"""The layer that performs: sockets, tasks and clocks on Trio, around `sphtp.core`.

The core decides what the protocols do. Most modules here own one kind of resource: they pass bytes
and the time to an object of the core, and perform the outputs of that object's ``poll_*`` methods.
The shell decides only how a process uses its resources. For example, ``loop`` shares the processor
between a node and the program, and ``shared_memory`` decides which channels get a segment.
"""
