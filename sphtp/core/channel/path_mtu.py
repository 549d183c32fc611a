"""Path MTU discovery: the search for the largest datagram that the path carries (RFC 8899).

Probes leave one at a time, in addition to the data. They try the likely sizes in ascending order. A
size whose probe is lost three times is too large. The search then tries sizes between the largest
that passed and the smallest that is too large, until these differ by a sixteenth or less.

When the route changes, a size that passed may fail: large packets vanish while small ones arrive.
Then all packets have to become small at once (black hole detection, section 4.3).

The search assumes that packets of the base size pass, which nearly every path carries. If they do
not, the size falls to the floor, and the search continues between the two. On a path that does not
carry the floor, no channel is possible.
"""

from collections.abc import Sequence

from sphtp.core.channel.settings import SMALLEST_DATAGRAM
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.errors import SettingsError

BASE = 1200

# The UDP payload of a datagram of 576 bytes, which every IPv4 host accepts (RFC 1122, 3.3.3).
FLOOR = 548

# The largest sizes of common paths: tunnels, Ethernet with IPv6 and IPv4, jumbo frames, loopback.
LIKELY = (1400, 1452, 1472, 4096, 8192, 8972, 16_384, 32_768, 65_507)

INFINITY = float("inf")

# The lost probes of one size after which that size is too large.
TRIES = 3
# The unanswered probe timeouts after which the size of the packets may be the cause.
DOUBTFUL = 2
# The gain for which a probe between two known sizes is worthwhile, as a share of the smaller one.
WORTHWHILE = 1 / 16
# The fewest losses of large packets, in different round trips, that show a black hole.
BLACK_HOLE_LOSSES = 4
# The greatest probability that random losses look like a base size, or a floor, that does not pass.
# After an error at the base size, packets are smaller until the next search, ten minutes later.
# After one at the floor, the channel ends. On a path without other losses, ten lost packets and
# nine small ones that arrive between them are evidence enough.
CHANCE = 1e-9
# Seconds until the next search, after a search has ended and after a black hole.
RAISE_AFTER = 600.0
RETRY_AFTER = 60.0


class MtuSearchState(Name):
    """The states of the search."""

    READY = "the next probe may leave"
    PROBING = "a probe is in flight"
    RESTING = "the search waits for its next time"
    TOO_SMALL = "the path does not carry the smallest size that a channel needs"


class MtuEvent(Name):
    """The events of the search."""

    PROBE = "a probe leaves"
    ACKED = "the ack of the probe arrived"
    LOST = "the probe is lost"
    REFUSED = "the host or the path refuses datagrams of this size"
    LATE = "the ack of an earlier probe arrived, which was declared lost"
    FOUND = "no size is left that is worth a probe"
    BLACK_HOLE = "packets above the base size vanish, or the path changed"
    BASE_LOST = "packets of the base size vanish, or of a size between floor and base"
    FLOOR_LOST = "packets of the floor size vanish"
    RAISE = "the time of the next search has come"


class MtuAction(Name):
    """The actions of the search."""

    GROW = "use the size that arrived"
    COUNT = "count a lost probe; after the third one the size is too large"
    CONDEMN = "the size is too large"
    FALL_BACK = "use the base size"
    FALL_DEEP = "use the floor size, and mark the sizes that vanished as too large"
    REST = "search again in ten minutes"
    REST_SHORTLY = "search again in a minute"
    FORGET = "clear the record of the sizes that were too large"


S, E, A = MtuSearchState, MtuEvent, MtuAction

ROWS: tuple[Row[MtuSearchState, MtuEvent, MtuAction], ...] = (
    Row(S.READY, E.PROBE, S.PROBING, (), "only one probe is in flight at a time"),
    Row(S.READY, E.FOUND, S.RESTING, (A.REST,), "the search has found the size"),
    Row(S.READY, E.LATE, S.READY, (A.GROW,), "the probe passed after all"),
    Row(S.READY, E.BLACK_HOLE, S.RESTING, (A.FALL_BACK, A.REST_SHORTLY), "the route changed"),
    Row(S.READY, E.BASE_LOST, S.READY, (A.FALL_DEEP,), "some paths carry less than the base"),
    Row(S.READY, E.FLOOR_LOST, S.TOO_SMALL, (), "a channel cannot use smaller packets"),
    Row(S.PROBING, E.ACKED, S.READY, (A.GROW,), "the path carries this size"),
    Row(S.PROBING, E.LOST, S.READY, (A.COUNT,), "the loss may be due to chance"),
    Row(S.PROBING, E.REFUSED, S.READY, (A.CONDEMN,), "a refusal is certain"),
    Row(S.PROBING, E.LATE, S.PROBING, (A.GROW,), "the probe passed after all"),
    Row(S.PROBING, E.BLACK_HOLE, S.RESTING, (A.FALL_BACK, A.REST_SHORTLY), "the route changed"),
    Row(S.PROBING, E.BASE_LOST, S.READY, (A.FALL_DEEP,), "some paths carry less than the base"),
    Row(S.PROBING, E.FLOOR_LOST, S.TOO_SMALL, (), "a channel cannot use smaller packets"),
    Row(S.RESTING, E.RAISE, S.READY, (A.FORGET,), "the route may have changed"),
    Row(S.RESTING, E.BLACK_HOLE, S.RESTING, (A.FALL_BACK, A.REST_SHORTLY), "the route changed"),
    Row(S.RESTING, E.BASE_LOST, S.READY, (A.FALL_DEEP,), "some paths carry less than the base"),
    Row(S.RESTING, E.FLOOR_LOST, S.TOO_SMALL, (), "a channel cannot use smaller packets"),
)

PATH_MTU = Machine(
    "Path MTU search",
    S.READY,
    ROWS,
    events=MtuEvent,
    final=frozenset({S.TOO_SMALL}),
    refused={
        S.READY: frozenset({E.ACKED, E.LOST, E.REFUSED, E.RAISE}),
        S.PROBING: frozenset({E.PROBE, E.FOUND, E.RAISE}),
        # A late ack is no evidence for a path that has changed since.
        S.RESTING: frozenset({E.PROBE, E.ACKED, E.LOST, E.REFUSED, E.LATE, E.FOUND}),
        S.TOO_SMALL: frozenset(MtuEvent),
    },
)


class PathMtu:
    """The search for the largest datagram that the path carries. Sizes in bytes, times in seconds.

    ``size`` is the size for packets: the largest one that has passed, or the base, or the floor if
    packets of the base size vanish. ``base`` is a size that nearly every path carries. ``ceiling``
    is the largest size that both sides accept, and ``floor`` the smallest for a channel.
    ``envelope`` is the number of bytes that sealing adds to each datagram; no other size includes
    them. Raises ``SettingsError`` if the ceiling is below the base.
    """

    __slots__ = ("_ceiling", "_counted_at", "_due", "_is_unanswered", "_likely", "_losses",
                 "_passing", "_probe", "_small_lost", "_small_through", "_too_large", "_tries",
                  "_vanishing", "base", "floor", "size", "state")  # fmt: skip

    def __init__(self, base: int = BASE, ceiling: int = LIKELY[-1], envelope: int = 0) -> None:
        if ceiling < base:
            raise SettingsError(f"a largest datagram of {ceiling} is under the base of {base}")
        self.state = PATH_MTU.initial
        self.base = base
        self.floor = min(base, FLOOR - envelope)
        self.size = base
        self._ceiling = ceiling
        self._likely = (base, *(size - envelope for size in LIKELY))
        self._too_large = ceiling + 1
        self._probe = 0
        self._tries = 0
        self._due = 0.0
        # Since the last ack of a packet of the size from which on packets seem to vanish: the
        # number of round trips in which large packets were lost, the time of the last of these
        # losses, this size, and the acks and losses of small packets.
        self._losses = 0
        self._counted_at = 0.0
        self._vanishing = 0
        self._small_through = 0
        self._small_lost = 0
        # The size of the largest small packet that arrived.
        self._passing = 0
        self._is_unanswered = False

    @property
    def tail_size(self) -> int:
        """The largest size that does not seem to vanish: ``size`` while none does.

        The ack of a packet of at most this size shows that larger ones were lost because of their
        size.
        """
        return self._small if self._losses or self._is_unanswered else self.size

    @property
    def vanishing(self) -> int:
        """The size from which on packets seem to vanish; 0 while none seems to vanish."""
        return self._vanishing

    @property
    def _small(self) -> int:
        """The largest size of a small packet.

        The acks of small packets show that only large ones vanish. At the floor, control packets
        are the small ones.
        """
        if self.size > self.base:
            return self.base
        return self.floor if self.size > self.floor else min(self.floor, SMALLEST_DATAGRAM)

    def poll_timeout(self) -> float | None:
        """Return when the next probe or search is due; None while a probe is in flight."""
        return None if self.state is MtuSearchState.PROBING else self._due

    def poll_probe(self, now: float, largest: float = INFINITY) -> int | None:
        """Return the size of a probe to send now; None if none is due.

        Return None also while the next size is above ``largest``. A returned size counts as in
        flight. The caller must not report the loss of a probe to congestion control, because it is
        no evidence of a queue.
        """
        if self.state is MtuSearchState.RESTING and now >= self._due:
            self._step(now, MtuEvent.RAISE)
        if self.state is not MtuSearchState.READY:
            return None
        size = self._next_size()
        if size is None:
            self._step(now, MtuEvent.FOUND)
            return None
        if size > largest:
            return None
        self._probe = size
        self._step(now, MtuEvent.PROBE)
        return size

    def probe_acked(self, now: float, size: int) -> None:
        """Handle the ack of a probe, even if the probe was declared lost."""
        if size == self._probe and self.state is MtuSearchState.PROBING:
            self._step(now, MtuEvent.ACKED)
        elif self.size < size <= self._ceiling:
            outstanding, self._probe = self._probe, size
            self._step(now, MtuEvent.LATE)
            self._probe = outstanding

    def probe_lost(self, now: float, size: int) -> None:
        """Handle a lost probe; the loss of an earlier probe than the last changes nothing."""
        if size == self._probe:
            self._step(now, MtuEvent.LOST)

    def refused(self, now: float, size: int) -> None:
        """Handle a datagram of this size, a probe or not, that the socket refused (EMSGSIZE)."""
        if size == self._probe and self.state is MtuSearchState.PROBING:
            self._step(now, MtuEvent.REFUSED)
        elif self._small < size <= self.size:
            self._vanishing = size
            self._step(now, self._sign_of_vanishing)

    def packets_acked(self, sizes: Sequence[int]) -> None:
        """Handle acked packets of these sizes."""
        self._is_unanswered = False
        if not self._losses:
            return
        if max(sizes) >= self._vanishing:
            self._forget_losses()
        else:
            self._small_through += 1
            self._passing = max(self._passing, *sizes)

    def packets_lost(self, now: float, sizes: Sequence[int], sent_at: float) -> None:
        """Handle packets of these sizes, other than probes, that were declared lost together.

        ``sent_at`` is the time at which the last of them left. If losses repeat while small packets
        arrive, the path is a black hole for large ones: ``size`` falls, and the caller has to cut
        the lost content again. Losses count once per round trip, because a full queue may also lose
        only large packets for a short time. Large packets that left before the last counted loss do
        not count.
        """
        small = self._small
        large = [size for size in sizes if small < size <= self.size]
        if self._losses:
            # There is no evidence for sizes above the largest small packet that arrived.
            passing = max(self._passing, min(small, SMALLEST_DATAGRAM))
            self._small_lost += sum([size <= passing for size in sizes])
        if not large or sent_at < self._counted_at:
            return
        self._counted_at = now
        self._losses += 1
        # Above the base, the size falls to the base, whatever the size of the lost packets.
        smallest = small + 1 if self.size > self.base else max(large)
        self._vanishing = min(self._vanishing or smallest, smallest)
        if self._is_black_hole:
            self._step(now, self._sign_of_vanishing)

    def unanswered(self, probes: int, size: int) -> None:
        """Handle a probe timeout, after ``probes`` of them without an ack.

        ``size`` is the size of the largest packet whose content the probe repeats.
        """
        self._is_unanswered = probes >= DOUBTFUL and size > self._small

    @property
    def _is_black_hole(self) -> bool:
        if self._losses < BLACK_HOLE_LOSSES or not self._small_through:
            return False
        if self.size > self.base:
            return True
        # The probability of so many large losses in a row at the loss rate of small packets.
        tried = self._small_through + self._small_lost + 1
        return (1 - self._small_through / tried) ** self._losses <= CHANCE

    @property
    def _sign_of_vanishing(self) -> MtuEvent:
        if self.size > self.base:
            return MtuEvent.BLACK_HOLE
        return MtuEvent.BASE_LOST if self.size > self.floor else MtuEvent.FLOOR_LOST

    def path_changed(self, now: float) -> None:
        """Fall back to the base size on another path, and search again in a minute."""
        self._forget(now)
        self._step(now, MtuEvent.BLACK_HOLE)

    def _next_size(self) -> int | None:
        good, bad = self.size, self._too_large
        for size in (*self._likely, self._ceiling):
            if good < size < bad and size <= self._ceiling:
                return size
        is_worthwhile = bad <= self._ceiling and bad - good > good * WORTHWHILE
        return (good + bad) // 2 if is_worthwhile else None

    def _step(self, now: float, sign: MtuEvent) -> None:
        _RUNNER.step(self, sign, now)

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
        self._forget_losses()

    def _fall_deep(self, now: float) -> None:
        self._too_large = self._vanishing
        self.size = self.floor
        self._tries = 0
        self._due = now
        self._forget_losses()

    def _forget_losses(self) -> None:
        self._losses = self._vanishing = 0
        self._small_through = self._small_lost = self._passing = 0

    def _rest(self, now: float) -> None:
        self._due = now + RAISE_AFTER

    def _rest_shortly(self, now: float) -> None:
        self._due = now + RETRY_AFTER

    def _forget(self, now: float) -> None:
        self._too_large = self._ceiling + 1
        self._tries = 0

    @classmethod
    def runner(cls) -> Runner[MtuSearchState, MtuEvent, MtuAction]:
        return Runner(
            PATH_MTU,
            {
                MtuAction.GROW: cls._grow,
                MtuAction.COUNT: cls._count,
                MtuAction.CONDEMN: cls._condemn,
                MtuAction.FALL_BACK: cls._fall_back,
                MtuAction.FALL_DEEP: cls._fall_deep,
                MtuAction.REST: cls._rest,
                MtuAction.REST_SHORTLY: cls._rest_shortly,
                MtuAction.FORGET: cls._forget,
            },
            # Refused events come too late: acks, losses and refusals of earlier probes.
            ignored=MtuEvent,
        )


_RUNNER = PathMtu.runner()
