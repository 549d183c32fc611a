"""Junk at the port of a node: the delay of its messages meanwhile, and its growth."""
