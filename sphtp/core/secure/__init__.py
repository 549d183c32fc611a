"""Secure peers: identities, the Noise handshake, cookies, seals, and what servers sign.

Nothing here knows channels, streams or the control plane; they import it.
"""
