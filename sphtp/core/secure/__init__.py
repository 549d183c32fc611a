"""Cryptography: identities, the Noise handshake, sealing of datagrams, MACs, and signatures.

Channels, streams and the control plane import this package; it imports none of them.
"""
