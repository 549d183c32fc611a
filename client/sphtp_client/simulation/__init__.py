"""Spheres in a box, cut into slabs, one slab per peer."""
