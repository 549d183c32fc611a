"""The layer that decides: no clock, socket, task or log, and no randomness of its own.

``now`` is an argument in seconds of any monotonic clock; entropy is a ``Random`` passed to the
constructor. So one seed gives one trace, and a day of bad network runs in seconds.

Objects here have four kinds of method: getters; ``handle_*`` for inputs; commands for the
application's requests; ``poll_*`` for outputs.
"""
