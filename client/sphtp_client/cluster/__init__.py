"""Servers and clients as processes on this machine: the verb ``sphtp cluster``."""
