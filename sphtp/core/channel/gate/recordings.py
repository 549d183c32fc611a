"""One GREET, one place: what was seen on its way and is sent again from elsewhere gets none."""

from typing import Final

from sphtp.core.channel.gate.bonds import Bonds
from sphtp.core.channel.gate.visitor import Visitors
from sphtp.core.channel.opening import Origin
from sphtp.core.secure.identity import KEY_SIZE

FEWEST: Final = 64


class Recordings:
    """Where GREETs came from that say by themselves who sends them, as long as they have a place.

    Such a one can be sent again by anybody, word by word, and nothing in it tells when it was made.
    Its first bytes, a key drawn for it alone, tell it from every other.
    """

    def __init__(self, visitors: Visitors, bonds: Bonds) -> None:
        self._visitors = visitors
        self._bonds = bonds
        self._places: dict[bytes, Origin] = {}
        self._sweep_at = FEWEST

    def __len__(self) -> int:
        return len(self._places)

    def has_place(self, noise: bytes, origin: Origin) -> bool:
        """Whether a GREET has a place already, with another origin than this one."""
        place = self._places.get(noise[:KEY_SIZE])
        return place is not None and place != origin and self._is_kept(place)

    def note(self, noise: bytes, origin: Origin) -> None:
        """Take note of a GREET that gets a place."""
        if len(self._places) >= self._sweep_at:
            kept = {key: place for key, place in self._places.items() if self._is_kept(place)}
            self._places, self._sweep_at = kept, max(FEWEST, 2 * len(kept))
        self._places[noise[:KEY_SIZE]] = origin

    def _is_kept(self, place: Origin) -> bool:
        return self._visitors.find(place) is not None or self._bonds.towards(*place) is not None
