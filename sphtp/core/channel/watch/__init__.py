"""Watching channels: the same parts, which also tell an instrument what happens to them.

A channel that nobody watches is made of the plain parts, and so pays nothing for those here. The
watched ones add no decision of their own: they tell, and leave everything else as it is.
"""
