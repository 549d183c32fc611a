"""The verb ``sphtp top``: what the nodes of a cluster do, and what they wait for, as it changes.

A place is a page of metrics, or a server, that reports a state. ``places`` reads them.
``model`` makes reports of nodes, channels, streams and groups of what was read, and ``causes``
explains what waits for what; both are pure. ``tables`` makes rows of them, which ``screen``
shows on a terminal by Textual. ``command`` is the verb.
"""
