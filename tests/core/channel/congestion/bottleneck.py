"""A bottleneck in virtual time: bulk senders, one drop-tail queue, a delay, random loss.

A packet's departure from the queue is known when it enters, so that a packet costs no event of its
own: only acks, guards of held acks, and senders that wait for their pacer are events.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from sphtp.core.channel.congestion.controller import Controller
from sphtp.core.channel.congestion.delivery_rate import Ack, DeliveryRate, Lost, RateSnapshot
from sphtp.core.token_bucket import Pacer

DATAGRAM = 1200
TIMER_GRAIN = 0.001
ACK_EVERY = 16
ACK_DELAY = 0.01
PACKET_THRESHOLD = 3
TIME_THRESHOLD = 9 / 8
BUCKET = 1.0


@dataclass
class Path:
    """Rate in bytes/s, times in seconds; ``queues`` is the buffer in bandwidth-delay products."""

    rate: float = 2_500_000.0
    round_trip: float = 0.05
    queues: float = 1.0
    loss: float = 0.0
    jitter: float = 0.0002
    datagram: int = DATAGRAM

    @property
    def product(self) -> float:
        return self.rate * self.round_trip


@dataclass(slots=True)
class Packet:
    sequence: int
    stamp: RateSnapshot
    arrives: float | None


class World:
    """Events in order of time, and the queue that all flows share."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = Random(seed)
        self.now = 0.0
        self.queued: dict[int, list[float]] = {}
        self.dropped = 0
        self.offered = 0
        self._free_at = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until

    def queue(self, start: int, end: int) -> list[float]:
        """What arriving packets found in the queue, from one second to another."""
        return [sample for second in range(start, end) for sample in self.queued.get(second, [])]

    def carry(self, size: int) -> float | None:
        """When a packet that enters now reaches the other side, or None."""
        path = self.path
        self.offered += 1
        waiting = max(self._free_at - self.now, 0.0)
        in_queue = waiting * path.rate
        self.queued.setdefault(int(self.now / BUCKET), []).append(in_queue / path.product)
        if in_queue + size > path.queues * path.product + size:
            self.dropped += 1
            return None
        self._free_at = self.now + waiting + size / path.rate
        if path.loss and self.random.random() < path.loss:
            return None
        return self._free_at + path.round_trip / 2


class Flow:
    """A bulk sender with its receiver, driving a controller and a pacer as a channel does."""

    def __init__(
        self, world: World, controller: Controller, start: float = 0.0, supply: float | None = None
    ) -> None:
        self.world = world
        self.controller = controller
        self._datagram = world.path.datagram
        self.pacer = Pacer(10 * world.path.datagram)
        self.delivery = DeliveryRate()
        self.received: dict[int, int] = {}
        self.in_flight = 0
        self.peak_window = 0
        self.smoothed = 0.0
        self.minimum = float("inf")
        self._supply = supply
        self._start = start
        self._sequence = 0
        self._flying: deque[Packet] = deque()
        self._held: list[Packet] = []
        self._held_round = 0
        self._wakes_at: float | None = None
        self._limited = True
        self._progress_at = start
        world.at(start, self.send)
        world.at(start + 1.0, self.watch)

    def send(self) -> None:
        world, controller = self.world, self.controller
        now = world.now
        while True:
            if self._is_starved(now):
                return
            self._limited = True
            if self.in_flight + self._datagram > controller.window:
                return
            rate = controller.pacing_rate
            ready = self.pacer.ready_at(now, self._datagram, rate)
            if ready > now:
                self._wake_at(ready)
                return
            self._send_one(now, rate)

    def _is_starved(self, now: float) -> bool:
        """An application that makes ``supply`` bytes/s has nothing to send most of the time."""
        if self._supply is None:
            return False
        due = self._start + self._sequence * self._datagram / self._supply
        if due <= now:
            return False
        if self.in_flight < self.controller.window:
            self._limited = False
            self.delivery.set_app_limited(self.in_flight)
        self._wake_at(due)
        return True

    def _send_one(self, now: float, rate: float | None) -> None:
        stamp = self.delivery.stamp(now, self.in_flight)
        self.pacer.sent(now, self._datagram, rate)
        packet = Packet(self._sequence, stamp, self.world.carry(self._datagram))
        self._sequence += 1
        self.in_flight += self._datagram
        self._flying.append(packet)
        if packet.arrives is not None:
            self._arrive(packet, packet.arrives)

    def _wake_at(self, when: float) -> None:
        when = (int(when / TIMER_GRAIN) + 1) * TIMER_GRAIN
        if self._wakes_at is None or when < self._wakes_at or self._wakes_at <= self.world.now:
            self._wakes_at = when
            self.world.at(when, self.send)

    # The receiver: an ack for every 16th packet, or after the ack delay.

    def _arrive(self, packet: Packet, when: float) -> None:
        bucket = int(when / BUCKET)
        self.received[bucket] = self.received.get(bucket, 0) + self._datagram
        if self._held and when > self._deadline():
            self._flush(self._deadline())
        self._held.append(packet)
        if len(self._held) == 1:
            held_round = self._held_round
            self.world.at(self._deadline(), lambda: self._guard(held_round))
        if len(self._held) == ACK_EVERY:
            self._flush(when)

    def _deadline(self) -> float:
        return (self._held[0].arrives or 0.0) + ACK_DELAY

    def _guard(self, held_round: int) -> None:
        if held_round == self._held_round and self._held:
            self._flush(self.world.now)

    def _flush(self, when: float) -> None:
        acked, self._held = self._held, []
        self._held_round += 1
        delay = when - (acked[-1].arrives or 0.0)
        back = self.world.path.round_trip / 2 + self.world.random.random() * self.world.path.jitter
        self.world.at(when + back, lambda: self.acked(acked, delay))

    def acked(self, packets: Sequence[Packet], delay: float) -> None:
        world = self.world
        now = world.now
        newest = packets[-1]
        known = {packet.sequence for packet in packets}
        lost = list(self._take(known, newest))
        size = len(packets) * self._datagram
        self.in_flight -= size + len(lost) * self._datagram
        self._progress_at = now
        sample = now - newest.stamp.sent_at - delay
        self.minimum = min(self.minimum, sample)
        self.smoothed += (sample - self.smoothed) / 8 if self.smoothed else sample
        rate = self.delivery.acked(now, newest.stamp, size, self.minimum).rate
        if lost:
            self._report(now, lost)
        self.controller.acked(
            now,
            Ack(
                size=size,
                sent_at=newest.stamp.sent_at,
                round_trip=sample,
                smoothed=self.smoothed,
                minimum=self.minimum,
                in_flight=self.in_flight,
                limited=self._limited,
                delivered_rate=rate,
                busy_since=self.delivery.busy_since,
            ),
        )
        self.peak_window = max(self.peak_window, self.controller.window)
        self.send()

    def _take(self, known: set[int], newest: Packet) -> Iterator[Packet]:
        """Forget what is acked, and yield what is lost (RFC 9002, 6.1)."""
        kept: list[Packet] = []
        latest = newest.stamp.sent_at - TIME_THRESHOLD * self.smoothed
        while self._flying and self._flying[0].sequence <= newest.sequence:
            packet = self._flying.popleft()
            if packet.sequence in known:
                continue
            overtaken = packet.sequence <= newest.sequence - PACKET_THRESHOLD
            if overtaken or packet.stamp.sent_at <= latest:
                yield packet
            else:
                kept.append(packet)
        self._flying.extendleft(reversed(kept))

    def _report(self, now: float, lost: Sequence[Packet]) -> None:
        size = len(lost) * self._datagram
        self.controller.lost(now, Lost(size, lost[-1].stamp.sent_at, self.in_flight))

    def watch(self) -> None:
        """Once a second: when nothing was acked for that long, send a probe.

        As in a channel, what is lost comes to light only when something is acked again.
        """
        now = self.world.now
        if self._flying and now - self._progress_at >= 1.0:
            if now - self._progress_at < 2.0:
                self.controller.persistent(now)
            self._send_one(now, self.controller.pacing_rate)
        self.world.at(now + 1.0, self.watch)
