"""A member of a group and the requests of a channel, whatever their peers send.

Whatever comes, they raise ``RemoteError`` alone, and hold no more than their limits.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from sphtp.core.group import messages as m
from sphtp.core.group.machine import GroupMachine, GroupTerms
from sphtp.core.group.seats import Key, OnDeath, Seat
from sphtp.core.packing import Parts, pack
from sphtp.core.requests import wire
from sphtp.core.requests.table import RequestStatistics, RequestTable
from sphtp.errors import RemoteError, SphtpError
from tests.fuzz.choices import Choices, Script
from tests.fuzz.mutations import EDGES, mutate

OWN: Final[Key] = (5, 1)
KEYS: Final[tuple[Key, ...]] = ((3, 1), OWN, (7, 1), (9, 1), (9, 2), (2**32 - 1, 2**63))
LINKS: Final = 5
MOST_STEPS: Final = 2**60
STEPS: Final = (0, 1, 2, 3, 5, 255, 256, 300, 2**62, 2**63)
WAITS: Final = (0.0, 0.1, 1.0, 10.0, 31.0)


def seat_of(key: Key, start: int, end: int | None = None, *, has_left: bool = False) -> Seat:
    return Seat(*key, "", start, (start, key[0]), True, end, has_left)


class MemberUnderFuzz:
    """A member of a group with some peers; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._links: set[int] = set()
        self.now = 100.0
        terms = GroupTerms(
            group="fluid",
            name="it",
            on_death=choices.pick(list(OnDeath)),
            size=1 + choices.below(3),
            has_state=bool(choices.below(2)),
        )
        self.machine = GroupMachine(self.now, OWN, terms)

    def step(self) -> None:
        """Let one thing happen, and take what there is."""
        choices, machine = self._choices, self.machine
        link = choices.below(LINKS)
        match choices.below(12):
            case 0:
                self._open(link)
            case 1:
                if link in self._links:
                    self._lose(link)
            case 2:
                self.now += choices.pick(WAITS)
                machine.handle_timeout(self.now)
            case 3:
                machine.handle_departed(self.now, choices.pick(KEYS)[0])
            case 4:
                self._command()
            case 5:
                self._feed(link, mutate(choices, choices.pick(known_messages()), known_messages()))
            case 6 | 7:
                step = machine.step + choices.below(3)
                self._feed(link, m.contribution_head(choices.pick((step, *STEPS))) + b"\xc0")
            case 8:
                self._agree(link)
            case _:
                self._feed(link, m.encode_group_message(self._message()))
        self._settle()

    def _agree(self, link: int) -> None:
        """Let a peer introduce itself, answer a flush, and let this one in."""
        machine, key = self.machine, KEYS[link]
        if link not in self._links:
            self._open(link)
        founder = self._choices.pick((None, (3, 1)))
        policy = machine.terms.on_death.value
        self._feed(link, m.encode_group_message(
            m.GroupHello(m.VERSION, "fluid", key, "", policy, 2, True, founder)
        ))  # fmt: skip
        self._feed(link, m.encode_group_message(m.JoinRequest(KEYS[:4], KEYS[:4])))
        for message in (
            m.FlushState(1 + self._choices.below(3), 1, machine.step - 1, machine.seats, (), None),
            m.Install(1, 2, (3, 1), (seat_of(key, 0), seat_of(OWN, machine.step))),
            m.Admitted(1),
            m.StateSnapshot(machine.step, b""),
        ):
            if self._choices.below(2):
                self._feed(link, m.encode_group_message(message))

    def _message(self) -> m.GroupMessage:
        choices = self._choices
        step = choices.pick((self.machine.step, *STEPS))
        keys = tuple([choices.pick(KEYS) for _ in range(choices.below(4))])
        seats = tuple([
            seat_of(key, choices.pick(STEPS), choices.pick((None, step)), has_left=step % 2 == 0)
            for key in (OWN, *keys)
        ])  # fmt: skip
        options: list[m.GroupMessage] = [
            m.JoinRequest(keys, keys),
            m.FlushRequest(choices.below(4), keys),
            m.FlushState(
                choices.below(4), 1, step, seats, tuple((key, step) for key in keys), None
            ),
            m.Install(choices.below(4), choices.below(4), choices.pick(KEYS), seats),
            m.HeldContribution(choices.pick(KEYS), m.contribution_head(step) + b"\xc0"),
            m.Abandon(choices.below(4)),
            m.Admitted(1),
            m.Complaint(keys),
            m.Exclusion("so"),
            m.Leaving(step),
            m.LeaveReleased(step),
            m.StateSnapshot(step, b"state"),
            m.StepReached(step),
            m.Dying("so"),
        ]
        return choices.pick(options)

    def _command(self) -> None:
        choices, machine = self._choices, self.machine
        with suppress(SphtpError):
            match choices.below(8):
                case 0:
                    machine.leave(self.now)
                case 1:
                    machine.die("so")
                case 2:
                    keys = [seat.key for seat in machine.members][: choices.below(3)]
                    machine.contribute(m.contribution_head(machine.step) + b"\xc0", keys)
                case _:
                    machine.contribute(m.contribution_head(machine.step) + b"\xc0")

    def _open(self, link: int) -> None:
        if link not in self._links:
            self._links.add(link)
            self.machine.handle_link_opened(self.now, link, KEYS[link][0])

    def _lose(self, link: int) -> None:
        self._links.discard(link)
        self.machine.handle_link_lost(self.now, link)

    def _feed(self, link: int, data: bytes) -> None:
        try:
            self.machine.handle_message_untrusted(self.now, link, data)
        except RemoteError:
            self._lose(link)

    def _settle(self) -> None:
        machine = self.machine
        for outgoing in machine.ready.values():
            for data in outgoing:
                # What it sends, others can read; unless it was let in at a step beyond all others.
                sent = data.join() if isinstance(data, Parts) else data
                if machine.step < MOST_STEPS and m.step_of_untrusted(sent) is None:
                    m.decode_group_message_untrusted(sent)
            outgoing.clear()
        machine.ready.clear()
        if machine.wants_state:
            machine.give_state(pack("state"))
        while machine.closing:
            link = machine.closing.popleft()
            if link in self._links:
                self._lose(link)
        machine.events.clear()
        machine.steps.results.clear()


class RequestsUnderFuzz:
    """The table of a channel of requests; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self.now = 100.0
        self.statistics = RequestStatistics()
        self.table = RequestTable(self.now, self.statistics)

    def step(self) -> None:
        """Let one thing happen, and take what there is."""
        choices, table = self._choices, self.table
        number = choices.below(4)
        match choices.below(8):
            case 0:
                if table.has_room:
                    number, outgoing = table.ask(self.now, "load", b"\x07", None)
                    if choices.below(4):
                        table.handle_sent(self.now, outgoing)
                    else:
                        table.withdraw(self.now, number)
            case 1:
                table.cancel(number)
            case 2:
                if (reply := table.reply(number, b"\xc0")) is not None:
                    table.handle_sent(self.now, reply)
            case 3:
                table.fail(wire.ErrorMessage(number, wire.ErrorReason.CRASHED))
            case 4:
                self.now += choices.pick(WAITS)
                table.handle_timeout(self.now)
            case 5:
                self._feed(mutate(choices, wire.encode_message(self._message(number))))
            case _:
                self._feed(wire.encode_message(self._message(number)))
        self._settle()

    def _message(self, number: int) -> wire.Message:
        options: list[wire.Message] = [
            wire.RequestMessage(number, "load", b"\x07"),
            wire.CancelMessage(number),
            wire.ReplyMessage(number, b"\xc0"),
            wire.ErrorMessage(number, wire.ErrorReason.BUSY),
            wire.GoodbyeMessage(),
        ]
        return self._choices.pick(options)

    def _feed(self, data: bytes) -> None:
        try:
            self.table.handle_message_untrusted(self.now, data)
        except RemoteError as error:
            self.table.handle_ended(self.now, str(error))

    def _settle(self) -> None:
        while self.table.poll_event() is not None:
            pass
        while (outgoing := self.table.poll_transmit()) is not None:
            wire.decode_message_untrusted(outgoing.data)
            self.table.handle_sent(self.now, outgoing)


@cache
def known_messages() -> Sequence[bytes]:
    """One message of each kind."""
    return tuple(_known_messages())


def _known_messages() -> Iterator[bytes]:
    seats = (seat_of((3, 1), 0), seat_of(OWN, 4), seat_of((7, 1), 0, 3))
    contribution = m.contribution_head(2) + b"\xc0"
    yield contribution
    for message in (
        m.GroupHello(m.VERSION, "fluid", (3, 1), "ada", "raise", 2, True, None),
        m.JoinRequest(KEYS, KEYS[:2]),
        m.FlushRequest(1, KEYS[:2]),
        m.FlushState(1, 2, 3, seats, (((7, 1), 2),), (3, 1)),
        m.Install(1, 2, (3, 1), seats),
        m.HeldContribution((7, 1), contribution),
        m.Abandon(1),
        m.Admitted(2),
        m.Complaint(KEYS[:1]),
        m.Exclusion("so"),
        m.Leaving(4),
        m.LeaveReleased(4),
        m.StateSnapshot(4, pack("state")),
        m.StepReached(EDGES[-2]),
        m.Dying("so"),
    ):
        yield m.encode_group_message(message)


def member(data: bytes) -> GroupMachine:
    """Play a script to a member of a group."""
    script = Script(data)
    it = MemberUnderFuzz(script)
    while script:
        it.step()
    return it.machine


def requests(data: bytes) -> RequestTable:
    """Play a script to the requests of a channel."""
    script = Script(data)
    it = RequestsUnderFuzz(script)
    while script:
        it.step()
    return it.table
