"""The layer that decides: no clock, socket, task or log, no randomness but what is handed in.

``now`` is an argument in seconds of any monotonic clock; entropy is a ``Random`` given at
construction. So one seed gives one trace, and a day of bad network runs in seconds.

Objects here have four kinds of method: getters; ``handle_*`` for what happened; commands for what
the application wants; ``poll_*`` for what the shell must now do.
"""
