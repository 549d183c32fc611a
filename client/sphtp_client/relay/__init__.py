"""A bad network for real sockets: the verb ``sphtp relay``."""
