"""This library as it is by default: every packet sealed."""

from sphtp_benchmarks.systems.sphtp import echo, ping, receive, send

__all__ = ["echo", "ping", "receive", "send"]
