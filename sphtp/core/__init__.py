"""The protocols, without I/O: no clock, socket, task or log, and no randomness of their own.

``now`` is an argument in seconds of any monotonic clock. Randomness is an argument, too: see
``entropy``. So one seed gives one trace, and a day of bad network runs in seconds.

Machines here have four kinds of method: getters; ``handle_*`` for inputs; commands for the
application's requests; ``poll_*`` for outputs.
"""
