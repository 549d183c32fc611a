"""Plays a schedule before judges, each of which holds an invariant or two."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from sphtp.core.stream.wire import STREAM_HEADER, Body, decode_stream_header_untrusted
from sphtp.errors import RemoteError
from sphtp.testing import Broadcast
from sphtp.testing.broadcast import STATION, Observer, Party
from sphtp.testing.network import Address
from sphtp.testing.stream import Publisher, Subscriber
from tests.core.stream.invariants.ledger import Ledger
from tests.core.stream.invariants.reception import Reception, read
from tests.core.stream.invariants.schedule import (
    Cut,
    Fate,
    Join,
    Leave,
    Partition,
    Restart,
    Schedule,
    Send,
    Step,
    Tell,
    Wait,
)
from tests.core.stream.invariants.wire import LIES, Datagram, Wire


class Judge(Observer):
    """Sees a play, and fails when an invariant does not hold."""

    def __init__(self, play: "Play") -> None:
        self.play = play

    def left(self, now: float, publisher: Publisher, place: Address, said: Body, size: int) -> None:
        """A body of a source leaves for one place, its only receiver's or a group's."""

    def touched(self, now: float, party: Party) -> None:
        """Something was done to a party, and what it gave rise to has left."""

    def look(self, now: float) -> None:
        """A step of the schedule was done."""

    def finish(self) -> None:
        """All is over."""


class Play(Broadcast):
    """A broadcast in which a schedule happens; ``receptions`` and ``ledgers`` are what is known."""

    def __init__(self, schedule: Schedule, judges: Sequence[type[Judge]]) -> None:
        self.schedule = schedule
        self.first = schedule.first
        self.receptions: dict[Subscriber, Reception] = {}
        self.ledgers: dict[Publisher, Ledger] = {}
        self.fates: dict[Publisher, Fate] = {}
        """How those that are no more have ended."""
        self.living: list[Publisher] = []
        """Sources that may send."""
        self.present: list[Subscriber] = []
        """Receivers that did not leave."""
        self._judges = [judge(self) for judge in judges]
        # Only of those that care: these are called for everything that moves.
        self._touched = [
            judge.touched for judge in self._judges if type(judge).touched is not Judge.touched
        ]
        self._left = [judge.left for judge in self._judges if type(judge).left is not Judge.left]
        self._lots = Random(f"{schedule.seed} play")
        super().__init__(
            schedule.seed,
            0,
            schedule.down,
            schedule.settings,
            shared=schedule.shared,
            topics=schedule.topics,
            first=schedule.first,
            line=schedule.line,
            observers=[_Listener(self), *self._judges],
        )
        self.network = Wire(schedule.seed, schedule.down, self._leave_for)
        self._live(self.publisher)
        for _ in range(1, schedule.sources):
            self._open()

    def perform(self) -> None:
        """Play it to its end."""
        for step in self.schedule.steps:
            self._do(step)
            for judge in self._judges:
                judge.look(self.now)
        self._end()
        for judge in self._judges:
            judge.finish()

    def touch(self, party: Party) -> None:
        """As ever, and let the judges see it."""
        super().touch(party)
        for touched in self._touched:
            touched(self.now, party)

    def hear(self, now: float, subscriber: Subscriber, bodies: Sequence[bytes]) -> None:
        """Keep the model of a receiver up, unless the network makes it believe anything."""
        if self.schedule.down.corrupt:
            return
        reception = self.receptions[subscriber]
        reception.bodies += len(bodies)
        for body in bodies:
            said = read(body, self.first)
            if said is not None and subscriber.transport.poll_timeout() is not None:
                reception.hear(now, said)

    def _notify_closing(self, subscriber: Subscriber) -> None:
        if subscriber.transport.poll_timeout() is not None and not self.schedule.down.corrupt:
            self.receptions[subscriber].learn(self.now, subscriber.publisher.source.window)
        super()._notify_closing(subscriber)

    # Steps

    def _do(self, step: Step) -> None:
        match step:
            case Send():
                self._send(step)
            case Join():
                self._admit(self.living[step.source % len(self.living)], step)
            case Leave():
                self._part(step)
            case Partition():
                self._set_faults(down=step.down, up=step.up)
                self.run(step.seconds)
                self._set_faults(down=False, up=False)
            case Cut():
                self._set_faults(down=step.down, up=step.up)
            case Wait():
                self.run(step.seconds)
            case Restart():
                self._restart(step)
            case Tell():
                self._lie(step)

    def _send(self, step: Send) -> None:
        publisher = self.living[step.source % len(self.living)]
        ledger = self.ledgers[publisher]
        payloads = [
            (b"%d %d %d " % (publisher.session, step.topic, ledger.messages + place))[:size]
            + bytes(max(size - 24, 0))
            for place, size in enumerate(step.sizes)
        ]
        if publisher.source.room:
            number = publisher.source.send_many(self.now, step.topic, payloads)
            ledger.add(self.now, step.topic, number, payloads)
            self.touch(publisher)

    def _part(self, step: Leave) -> None:
        if not self.present:
            return
        subscriber = self.present.pop(step.who % len(self.present))
        if step.says_so and subscriber.publisher.is_on_air:
            self.leave(subscriber)
        else:
            self.vanish(subscriber)

    def _restart(self, step: Restart) -> None:
        publisher = self.living.pop(step.source % len(self.living))
        its = [one for one in self.present if one.publisher is publisher]
        self._finish(publisher, step.fate)
        successor = self._open()
        for one in its:
            self._admit(successor, Join(0, one.terms, one.settings.send_naks), one.address)

    def _lie(self, step: Tell) -> None:
        if self.wire.said:
            source, destination, datagram = self._lots.choice(self.wire.said)
            lie = LIES[step.lie](self._lots, datagram)
            self.wire.slip(self.now, (source, destination, lie))

    # Who there is

    @property
    def wire(self) -> Wire:
        """The network."""
        assert isinstance(self.network, Wire)
        return self.network

    def _open(self) -> Publisher:
        publisher = self.open_source(topics=self.schedule.topics, first=self.first)
        self._live(publisher)
        return publisher

    def _live(self, publisher: Publisher) -> None:
        self.ledgers[publisher] = Ledger(self.schedule.topics)
        self.living.append(publisher)

    def _admit(self, publisher: Publisher, join: Join, address: Address | None = None) -> None:
        number = len(self.subscribers)
        address = address or (f"10.4.{number >> 8}.{number & 255}", 1000)
        self.network.set_faults(self.schedule.up, address, STATION)
        self.present.append(
            self.join(publisher, join.terms, address=address, send_naks=join.send_naks)
        )

    def _enter(self, party: Party, place: Address) -> None:
        if isinstance(party, Subscriber):
            lead = party.transport.lead
            assert lead is not None
            self.receptions[party] = Reception(lead)
        super()._enter(party, place)

    def _set_faults(self, *, down: bool, up: bool) -> None:
        schedule = self.schedule
        self.network.set_default(replace(schedule.down, blocked=down))
        for subscriber in self.subscribers:
            self.network.set_faults(replace(schedule.up, blocked=up), subscriber.address, STATION)

    # The end

    def _end(self) -> None:
        settings = self.settings
        if self.schedule.is_fair:
            self.run(settings.generation + settings.fetch_timeout)
        for publisher in self.living:
            self._finish(publisher, self.schedule.fate)
        if self.schedule.dark:
            self.run(self.schedule.dark)
            self._set_faults(down=False, up=False)
        self.run(
            settings.linger
            + settings.activity_timeout
            + settings.generation
            + settings.fetch_timeout
            + 30.0
        )

    def _finish(self, publisher: Publisher, fate: Fate) -> None:
        self.fates[publisher] = fate
        if fate is Fate.CLOSE:
            self.close(publisher)
        else:
            self.crash(publisher, unnoticed=fate is Fate.SILENCE)

    # What is said

    def _leave_for(self, now: float, sent: Datagram) -> None:
        _, place, datagram = sent
        try:
            session, _ = decode_stream_header_untrusted(datagram)
        except RemoteError:
            return
        publisher = next(one for one in self.publishers if one.session == session)
        body = datagram[STREAM_HEADER.size :]
        said = read(body, self.first)
        assert said is not None, "a source says what can be read"
        for left in self._left:
            left(now, publisher, place, said, len(body))


class _Listener(Observer):
    """Keeps the models of the receivers up, before anybody judges."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def bodies_received(self, now: float, subscriber: Subscriber, bodies: Sequence[bytes]) -> None:
        self._play.hear(now, subscriber, bodies)


def play(schedule: Schedule, judges: Sequence[type[Judge]]) -> Play:
    """Play a schedule to its end; what fails says which."""
    performed = Play(schedule, judges)
    try:
        performed.perform()
    except BaseException as error:
        error.add_note(f"at {performed.now:.4f} s of {schedule}")
        raise
    return performed
