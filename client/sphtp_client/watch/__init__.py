"""Watching a simulation: join late, see the present state of every slab, and follow it."""
