"""Figures of channels on simulated networks: virtual time, so that a seed has one result."""
