"""The transport of a stream at a receiver: finds what is missing, and asks for it."""
