"""Security of peers: identities, the Noise handshake, sealing, and server signatures.

Channels, streams and the control plane import this package; it imports none of them.
"""
