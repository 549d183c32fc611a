"""Schemas: descriptions of message types, which two programs compare when they connect."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sphtp.core.printable import printable

EXCERPT = 100


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The difference between two schemas, as a REFUSE reports it.

    ``schema_hash`` is that of the sender of the REFUSE. ``digest`` is the first digest among those
    that the receiver sent that is of no line of the sender; 0 if there is none. ``line`` is the
    first line of the sender whose digest is not among them, perhaps cut; empty if there is none.
    """

    schema_hash: int
    digest: int = 0
    line: str = ""


class Schema:
    """The schema of one side's messages: lines about types and limits, and a hash of all lines.

    The hash is 0 if there are no lines, as for messages without types and with default limits.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = tuple(sorted(lines))
        self.schema_hash = fingerprint(self.lines) if self.lines else 0

    @cached_property
    def digests(self) -> tuple[int, ...]:
        """A digest of 32 bits for each line, in their order."""
        return tuple(map(digest_of, self.lines))

    def compare(self, digests: Sequence[int]) -> Mismatch:
        """Return the difference between this schema and one with these digests.

        ``digests`` may lack some of the other schema's lines.
        """
        ours, theirs = set(self.digests), set(digests)
        lines = zip(self.lines, self.digests, strict=True)
        return Mismatch(
            self.schema_hash,
            next((digest for digest in digests if digest not in ours), 0),
            next((line for line, digest in lines if digest not in theirs), ""),
        )

    def explain(self, other: Mismatch) -> str:
        """Return a sentence about the difference ``other``, which comes from the other side.

        The other side may have forged it.
        """
        # A peer that received only some of this side's digests may name a line that this side has.
        theirs = {printable(other.line)} - {"", *self.lines}
        ours = {line for line in self.lines if digest_of(line) == other.digest}
        names = {line.partition(": ")[0] for line in theirs}
        ours |= {line for line in self.lines if line.partition(": ")[0] in names}
        hashes = f"here {_name(self.schema_hash)}, there {_name(other.schema_hash)}"
        first = difference(ours, theirs)
        return f"message types differ ({hashes})" + (f": {first}" if first else "")


def fingerprint(lines: Iterable[str]) -> int:
    """Return a hash of 64 bits of these lines; equal on all machines and Python versions."""
    text = "\n".join(lines).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def digest_of(line: str) -> int:
    """Return a hash of 32 bits of a line."""
    return fingerprint([line]) >> 32


def difference(ours: Iterable[str], theirs: Iterable[str]) -> str | None:
    """Return the first type, in alphabetical order, in which two schemas differ; None if in none.

    ``ours`` and ``theirs`` are lines of ``MessageCodec.describe``. The result begins with the name
    of the type, and shows the part of a long line that differs.
    """
    our_types, their_types = _by_name(ours), _by_name(theirs)
    for name in sorted(our_types.keys() | their_types.keys()):
        here, there = our_types.get(name), their_types.get(name)
        if here != there:
            at = _common(here or "", there or "")
            return f"{name}: here {_excerpt(here, at)}, there {_excerpt(there, at)}"
    return None


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    return {name: what for name, _, what in (line.partition(": ") for line in lines)}


def _name(schema_hash: int) -> str:
    return f"{schema_hash:016x}" if schema_hash else "none"


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _excerpt(text: str | None, at: int) -> str:
    """Return the part of a text around an offset; "missing" for no text."""
    if not text:
        return "missing"
    if len(text) <= EXCERPT:
        return text
    start = max(0, at - EXCERPT // 2)
    before, after = "..." if start else "", "..." if start + EXCERPT < len(text) else ""
    return f"{before}{text[start : start + EXCERPT]}{after}"
