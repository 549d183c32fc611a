"""What two programs compare when they connect, so that they differ there and not in mid-flight."""

import hashlib
from collections.abc import Iterable


def fingerprint(lines: Iterable[str]) -> int:
    """Return 64 bits that stand for a description; equal on all machines and Python versions."""
    text = "\n".join(lines).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def difference(ours: Iterable[str], theirs: Iterable[str]) -> str | None:
    """Name the first type, by the alphabet, in which two descriptions differ; None: in none.

    Lines are those of ``MessageCodec.describe``; the name stands first in the answer, which may
    be cut.
    """
    our_types, their_types = _by_name(ours), _by_name(theirs)
    for name in sorted(our_types.keys() | their_types.keys()):
        here, there = our_types.get(name), their_types.get(name)
        if here != there:
            return f"{name}: here {here or 'missing'}, there {there or 'missing'}"
    return None


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    return {name: what for name, _, what in (line.partition(": ") for line in lines)}
