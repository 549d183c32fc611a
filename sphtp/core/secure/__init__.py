"""Secure peers: the room of identity, handshake, cookie and seal.

What is in here knows neither channels nor streams; they come to it.
"""
