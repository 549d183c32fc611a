"""The time that a stream takes to recover losses of a network, in virtual time."""
