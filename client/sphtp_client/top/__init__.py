"""The verb ``sphtp top``: the activity of the nodes of a cluster, and the causes of waiting.

A place is an address of metrics, or a server. ``places`` reads the states of places. ``model``
converts these to reports of nodes, channels, streams and groups, and ``causes`` derives sentences
on waiting from them; neither has I/O. ``tables`` makes rows of the reports, which ``screen`` shows
on a terminal by Textual, and ``printing`` prints. ``command`` is the verb.
"""
