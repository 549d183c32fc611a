"""How large a datagram the path takes (RFC 8899, packetization layer path MTU discovery).

Probes of growing size go out, one at a time and beside the data, until one gets no ack three
times. A size that worked may stop to work when the route changes: then large packets vanish while
small ones arrive, and everything has to be small again at once.
"""

from sphtp.core.machine import Machine, Name, Row
from sphtp.errors import SettingsError

BASE = 1200

# Sizes at which paths tend to end: tunnels, Ethernet with IPv6 and IPv4, jumbo frames, loopback.
LIKELY = (1400, 1452, 1472, 4096, 8192, 8972, 16_384, 32_768, 65_507)

INFINITY = float("inf")

TRIES = 3
WORTHWHILE = 1 / 16
BLACK_HOLE_LOSSES = 4
RAISE_AFTER = 600.0
RETRY_AFTER = 60.0


class Search(Name):
    """Where the search is."""

    READY = "the next probe may leave"
    PROBING = "a probe is on its way"
    RESTING = "nothing larger is worth a try for now"


class Sign(Name):
    """What happens to it."""

    PROBE = "a probe leaves"
    ACKED = "the probe arrived"
    LOST = "the probe is lost"
    REFUSED = "the host or the path refuses datagrams of this size"
    LATE = "an earlier probe, given up for lost, arrived"
    FOUND = "no size is left that is worth a probe"
    BLACK_HOLE = "large packets vanish"
    RAISE = "time to look again"


class Step(Name):
    """What it then does."""

    GROW = "use the size that arrived"
    COUNT = "count a try; after the last one the size is too large"
    CONDEMN = "the size is too large"
    FALL_BACK = "use the base size"
    REST = "look again in ten minutes"
    REST_SHORTLY = "look again in a minute"
    FORGET = "take no size for too large any more"


P, S, D = Search, Sign, Step

ROWS: tuple[Row[Search, Sign, Step], ...] = (
    Row(P.READY, S.PROBE, P.PROBING, (), "one at a time"),
    Row(P.READY, S.FOUND, P.RESTING, (D.REST,), "as large as the path takes"),
    Row(P.READY, S.LATE, P.READY, (D.GROW,), "it got through after all"),
    Row(P.READY, S.BLACK_HOLE, P.RESTING, (D.FALL_BACK, D.REST_SHORTLY), "the route changed"),
    Row(P.PROBING, S.ACKED, P.READY, (D.GROW,), "the path takes it"),
    Row(P.PROBING, S.LOST, P.READY, (D.COUNT,), "it may have been chance"),
    Row(P.PROBING, S.REFUSED, P.READY, (D.CONDEMN,), "no need to try again"),
    Row(P.PROBING, S.LATE, P.PROBING, (D.GROW,), "it got through after all"),
    Row(P.PROBING, S.BLACK_HOLE, P.RESTING, (D.FALL_BACK, D.REST_SHORTLY), "the route changed"),
    Row(P.RESTING, S.RAISE, P.READY, (D.FORGET,), "the route may be a better one now"),
    Row(P.RESTING, S.BLACK_HOLE, P.RESTING, (D.FALL_BACK, D.REST_SHORTLY), "the route changed"),
)

PATH_MTU = Machine(
    "Path MTU search",
    P.READY,
    ROWS,
    events=Sign,
    refused={
        P.READY: frozenset({S.ACKED, S.LOST, S.REFUSED, S.RAISE}),
        P.PROBING: frozenset({S.PROBE, S.FOUND, S.RAISE}),
        # A late ack says nothing about a path that has changed since.
        P.RESTING: frozenset({S.PROBE, S.ACKED, S.LOST, S.REFUSED, S.LATE, S.FOUND}),
    },
)


class PathMtu:
    """The largest datagram to send, in bytes. Times in seconds.

    ``base`` must be a size that is known to work; ``ceiling`` is the largest that both sides take,
    ``envelope`` what is added to each on its way.
    Raises ``SettingsError`` when it is under the base.
    """

    __slots__ = ("_ceiling", "_due", "_likely", "_losses", "_probe", "_small_through", "_steps",
                 "_too_large", "_tries", "base", "size", "state")  # fmt: skip

    def __init__(self, base: int = BASE, ceiling: int = LIKELY[-1], envelope: int = 0) -> None:
        if ceiling < base:
            raise SettingsError(f"a largest datagram of {ceiling} is under the base of {base}")
        self.state = PATH_MTU.initial
        self.base = base
        self.size = base
        self._ceiling = ceiling
        self._likely = tuple(size - envelope for size in LIKELY)
        self._too_large = ceiling + 1
        self._probe = 0
        self._tries = 0
        self._due = 0.0
        self._losses = 0
        self._small_through = 0
        self._steps = {
            Step.GROW: self._grow,
            Step.COUNT: self._count,
            Step.CONDEMN: self._condemn,
            Step.FALL_BACK: self._fall_back,
            Step.REST: self._rest,
            Step.REST_SHORTLY: self._rest_shortly,
            Step.FORGET: self._forget,
        }

    @property
    def tail_size(self) -> int:
        """How large a packet may be that has to get through: the base while larger ones vanish."""
        return self.base if self._losses else self.size

    def poll_timeout(self) -> float | None:
        """When ``poll_probe`` has something; None while a probe is on its way."""
        return None if self.state is Search.PROBING else self._due

    def poll_probe(self, now: float, largest: float = INFINITY) -> int | None:
        """The size of a datagram to send as a probe, which is then on its way; or None.

        None as well as long as the next size to try is over ``largest``.
        Its loss must not be told to congestion control: it says nothing about the queue.
        """
        if self.state is Search.RESTING and now >= self._due:
            self._step(now, Sign.RAISE)
        if self.state is not Search.READY:
            return None
        size = self._next_size()
        if size is None:
            self._step(now, Sign.FOUND)
            return None
        if size > largest:
            return None
        self._probe = size
        self._step(now, Sign.PROBE)
        return size

    def probe_acked(self, now: float, size: int) -> None:
        """A probe arrived, be it one given up for lost."""
        if size == self._probe and self.state is Search.PROBING:
            self._step(now, Sign.ACKED)
        elif self.size < size <= self._ceiling:
            outstanding, self._probe = self._probe, size
            self._step(now, Sign.LATE)
            self._probe = outstanding

    def probe_lost(self, now: float, size: int) -> None:
        """A probe was declared lost; one that is not awaited any more changes nothing."""
        if size == self._probe:
            self._step(now, Sign.LOST)

    def refused(self, now: float, size: int) -> None:
        """The socket refused a datagram (EMSGSIZE), be it a probe or not."""
        if size == self._probe and self.state is Search.PROBING:
            self._step(now, Sign.REFUSED)
        elif self.base < size <= self.size:
            self._step(now, Sign.BLACK_HOLE)

    def packets_acked(self, largest: int) -> None:
        """Packets arrived, the largest of that many bytes."""
        if largest > self.base:
            self._losses = self._small_through = 0
        elif self._losses:
            self._small_through += 1

    def packets_lost(self, now: float, largest: int) -> None:
        """Packets other than probes were declared lost together, the largest of that many bytes.

        When this goes on, and small packets get through meanwhile, the path is a black hole for
        large ones: ``size`` falls to ``base``, and what was lost has to be packed anew.
        """
        if not self.base < largest <= self.size:
            return
        self._losses += 1
        if self._losses >= BLACK_HOLE_LOSSES and self._small_through:
            self._step(now, Sign.BLACK_HOLE)

    def path_changed(self, now: float) -> None:
        """Start anew from the base: the size found was that of another path."""
        self._forget(now)
        self._step(now, Sign.BLACK_HOLE)

    def _next_size(self) -> int | None:
        good, bad = self.size, self._too_large
        for size in (*self._likely, self._ceiling):
            if good < size < bad and size <= self._ceiling:
                return size
        is_worthwhile = bad <= self._ceiling and bad - good > good * WORTHWHILE
        return (good + bad) // 2 if is_worthwhile else None

    def _step(self, now: float, sign: Sign) -> None:
        row = PATH_MTU.find(self.state, sign)
        if row is None:
            return
        self.state = row.to
        for action in row.do:
            self._steps[action](now)

    def _grow(self, now: float) -> None:
        self.size = max(self.size, self._probe)
        if self._too_large <= self.size:
            self._too_large = self._ceiling + 1
        self._tries = 0
        self._due = now

    def _count(self, now: float) -> None:
        self._tries += 1
        self._due = now
        if self._tries >= TRIES:
            self._condemn(now)

    def _condemn(self, now: float) -> None:
        self._too_large = min(self._too_large, max(self._probe, self.size + 1))
        self._tries = 0
        self._due = now

    def _fall_back(self, now: float) -> None:
        self.size = self.base
        self._losses = self._small_through = 0

    def _rest(self, now: float) -> None:
        self._due = now + RAISE_AFTER

    def _rest_shortly(self, now: float) -> None:
        self._due = now + RETRY_AFTER

    def _forget(self, now: float) -> None:
        self._too_large = self._ceiling + 1
        self._tries = 0
