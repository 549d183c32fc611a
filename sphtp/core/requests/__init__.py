"""Requests to a peer, each of which gets one answer unless the channel ends.

``wire`` has the messages, ``table`` the requests of both sides on one channel. The shell calls the
handlers, and chooses the channel of a request.
"""
