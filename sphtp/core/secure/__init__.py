"""Secure peers: the room of handshake, cookie and seal.

Not furnished yet: channels open with the plain handshake of ``sphtp.core.channel.handshake``. What
moves in here knows neither channels nor streams; they come to it.
"""
