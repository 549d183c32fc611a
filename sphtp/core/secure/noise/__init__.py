"""The Noise Protocol Framework (revision 34): three handshakes over X25519, AES-GCM and SHA-256.

It is told what came and says what to send; it draws from the source of secrets that it is handed.

===================  ============================================================
``patterns``         the handshakes: who says what, a table
``symmetric``        chaining key, hash and cipher: what all that was said adds up to
``small_order``      public keys that are good for nothing
``state``            one side's keys, and what a token does to them
``handshake``        whose turn it is; what is not authenticated changes nothing
===================  ============================================================
"""
