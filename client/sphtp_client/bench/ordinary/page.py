"""The introduction of the page of results."""

from typing import Final

HEAD: Final = """\
# Benchmarks of ordinary calls

Written by one run of `sphtp bench ordinary --markdown FILE`; not edited by hand.

Two processes on the loopback interface. One sends messages of 64 bytes, one call for each, as
people write it; the other one takes them one by one. The systems take turns, and each round begins
with another one. Nothing is put together by hand.
"""
