"""Requests: a question to a peer, and its one answer.

``wire`` has the messages, ``table`` the requests of both sides on one channel. What a peer serves,
and which channel a request takes, is decided in the shell.
"""
