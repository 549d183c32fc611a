"""A subscriber's connection to the history of its source: ordered and without loss, as TCP."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.core.timers import earliest
from sphtp.errors import SettingsError
from sphtp.testing.network import Flight
from sphtp.testing.publisher import Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFaults:
    """The faults and delays of connections to a history.

    Raises ``SettingsError``, naming the field, when a value is out of range.

    Attributes:
        delay: seconds that every frame travels; a connection is made in twice as many.
        refused: the share of connections that are refused.
        cut: the share of frames with which the connection breaks.
    """

    delay: float = 0.01
    refused: float = 0.0
    cut: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("delay", 3600.0), ("refused", 1.0), ("cut", 1.0)):
            if not 0 <= (value := getattr(self, name)) <= most:
                raise SettingsError(f"{name} is {value}; allowed is 0 to {most}")


OnArrival = Callable[[float], None]


@dataclass(slots=True, eq=False)
class _Call:
    """One connection; ``server`` is None while it is being made."""

    server: FetchServer | None = None
    under_way: Flight[OnArrival] = field(default_factory=Flight[OnArrival])


class HistoryLine:
    """Connects a subscription to the history of a publisher while the subscription wants it."""

    def __init__(
        self,
        subscription: SubscriptionMachine,
        publisher: Publisher,
        faults: LineFaults,
        random: Random,
    ) -> None:
        self.calls = 0
        """Connections that were tried."""
        self._subscription = subscription
        self._publisher = publisher
        self._faults = faults
        self._random = random
        self._call: _Call | None = None

    def look(self, now: float) -> None:
        """Dial or hang up if that is due, and send the waiting requests."""
        subscription, call = self._subscription, self._call
        if not subscription.wants_connection:
            self.cut(now)
        elif call is None:
            self._dial(now)
        elif call.server is not None:
            for request in iter(subscription.poll_request, None):
                self._carry(now, call, self._ask, request)

    def cut(self, now: float) -> None:
        """Break the connection, if there is one; the next ``look`` may make another."""
        if self._call is not None:
            self._call = None
            self._subscription.handle_disconnected(now)

    def poll_timeout(self) -> float | None:
        """Return when ``handle_timeout`` is due; None if never."""
        if self._call is None:
            return None
        server = self._call.server
        serves = None if server is None else server.poll_timeout()
        return earliest(self._call.under_way.next_time(), serves)

    def handle_timeout(self, now: float) -> None:
        """Deliver the frames that have arrived by now, and let the history answer."""
        call = self._call
        if call is None:
            return
        for arrive in call.under_way.take_due(now):
            # Frames that were under way when the connection broke do not arrive.
            if self._call is call:
                arrive(now)
        self._serve(now, call)

    def _dial(self, now: float) -> None:
        self.calls += 1
        self._call = call = _Call()
        call.under_way.add(now + 2 * self._faults.delay, self._connect)

    def _connect(self, now: float) -> None:
        call, publisher = self._call, self._publisher
        if call is None or not publisher.is_on_air or self._happens(self._faults.refused):
            self.cut(now)
        else:
            call.server = publisher.fetch_server()
            self._subscription.handle_connected(now)

    def _carry(
        self, now: float, call: _Call, take: Callable[[float, bytes], None], frame: bytes
    ) -> None:
        call.under_way.add(now + self._faults.delay, lambda then: take(then, frame))

    def _ask(self, now: float, frame: bytes) -> None:
        call = self._call
        if self._happens(self._faults.cut):
            self.cut(now)
        elif call is not None and call.server is not None:
            call.server.handle_frame_untrusted(frame)

    def _answer(self, now: float, frame: bytes) -> None:
        if self._happens(self._faults.cut):
            self.cut(now)
        else:
            self._subscription.handle_frame_untrusted(now, frame)

    def _serve(self, now: float, call: _Call) -> None:
        server = call.server
        if server is not None and self._publisher.is_on_air:
            while (frame := server.poll_transmit(now)) is not None:
                self._carry(now, call, self._answer, frame)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share
