"""Streams from one peer to many, beside publishers and subscribers of other systems."""
