"""Keeps the memory of messages at hand."""

from functools import cache
from typing import Final

BLOCK: Final = 32 * 1024 * 1024 - 8192
"""Bytes; with what the allocator adds, just under the most that glibc learns from: 32 MiB."""


@cache
def keep_freed_memory() -> None:
    """Teach the allocator of this process not to give back what the next messages need; once.

    glibc returns what is free at the end of its heap to the kernel, from 128 KiB on, and takes it
    again page by page: with messages of 64 KiB a receiver spent two thirds of its time on page
    faults, and with messages of 16 MB either side stood still for milliseconds. A block that was
    freed raises that limit to twice the block's size (mallopt(3), M_MMAP_THRESHOLD). Nothing is
    written to it, so that it never is in memory; other allocators learn nothing from it.
    """
    bytes(BLOCK)
