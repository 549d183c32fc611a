"""Ordinary calls: one message per call, as people write them."""
