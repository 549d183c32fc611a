"""Security of peers: identities, the Noise handshake, cookies, sealing, and server signatures.

Nothing here knows channels, streams or the control plane; they import it.
"""
