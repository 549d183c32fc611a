"""Whether members of a cluster vouch for what they say on the bus, at the bus itself."""

from random import SystemRandom
from typing import NamedTuple, Protocol

from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.doorkeeper import Pipe
from sphtp.core.secure.vouch import Verdict, Voucher, is_marked, strip
from sphtp.shell.bus import Arrival

_COUNTS = {Verdict.UNVOUCHED: Count.UNVOUCHED, Verdict.REPLAYED: Count.REPLAYED}


class Heard(NamedTuple):
    """A message for a machine; ``pipe`` is None when the message proves its sender."""

    data: bytes
    pipe: Pipe


class Vouching(Protocol):
    """What is done to each message on its way out and on its way in."""

    heard_vouched: bool
    """Whether somebody vouches for messages, and this side has no secret to judge that by."""

    def mark(self, data: bytes) -> bytes:
        """Return what to send. Raises ``MessageTooLargeError``."""
        ...

    def check(self, arrival: Arrival, counters: Counters) -> Heard | None:
        """Return what came, or None when it was dropped and counted."""
        ...


def vouching(secret: bytes | None) -> Vouching:
    """Return what a cluster with this secret does. Raises ``SettingsError``."""
    return _Open() if secret is None else _Vouched(secret)


class _Open:
    """Without a secret: what tells senders apart is the connection."""

    def __init__(self) -> None:
        self.heard_vouched = False

    def mark(self, data: bytes) -> bytes:
        return data

    def check(self, arrival: Arrival, _: Counters) -> Heard | None:
        self.heard_vouched = self.heard_vouched or is_marked(arrival.data)
        return Heard(*arrival)


class _Vouched:
    """With a secret: only what its holders say is heard, whichever way it comes."""

    def __init__(self, secret: bytes) -> None:
        self.heard_vouched = False
        self._voucher = Voucher(secret, SystemRandom().getrandbits(64))

    def mark(self, data: bytes) -> bytes:
        return self._voucher.vouch(data)

    def check(self, arrival: Arrival, counters: Counters) -> Heard | None:
        verdict = self._voucher.judge(arrival.data)
        if verdict is Verdict.GENUINE:
            return Heard(strip(arrival.data), None)
        counters.add(_COUNTS[verdict])
        return None
