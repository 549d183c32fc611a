"""How long a stream takes to recover what a network loses, in virtual time."""
