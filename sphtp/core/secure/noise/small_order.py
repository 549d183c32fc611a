"""Public keys that share one secret, zero, with everybody (RFC 7748, section 6)."""

from typing import Final

from sphtp.errors import LocalError

PRIME: Final = 2**255 - 19
# The u-coordinates of the points of order 1, 2, 4 and 8 on the curve and on its twist, and the
# ways to write them that still fit 255 bits.
SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        PRIME - 1,
        PRIME,
        PRIME + 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)


def require_useful(public: bytes) -> None:
    """Raise ``LocalError`` for a public key with which nothing can be kept secret."""
    # X25519 does not look at the highest bit.
    if int.from_bytes(public, "little") % 2**255 in SMALL_ORDER:
        raise LocalError("a public key of small order")
