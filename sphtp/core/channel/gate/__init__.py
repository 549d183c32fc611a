"""The gate between endpoint and socket: what leaves is sealed, what comes in is opened.

The endpoint speaks as in the clear. Its CONNECT and ACCEPT travel inside a Noise handshake, its
DATA inside the seal that the handshake gave; nothing reaches it that is not authentic.
"""
