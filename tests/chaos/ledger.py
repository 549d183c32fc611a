"""The books of all messages: what was sent, what was acknowledged, what was received."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.process import Line, Program


@dataclass
class Stream:
    """The messages that one channel carried one way, by number."""

    sent: list[int] = field(default_factory=list)
    outcomes: dict[int, str] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    to: int = 0
    """The id that the speaker dialled."""
    speaker_was_killed: bool = False

    @property
    def acknowledged(self) -> set[int]:
        return {number for number, outcome in self.outcomes.items() if outcome == "DELIVERED"}

    def faults(self, may_be_unread: int) -> Iterator[str]:
        """Say what is wrong; ``may_be_unread`` messages may have died with whoever read them."""
        count = len(self.received)
        if self.received != list(range(count)):
            yield f"received {self.received}: not each once, in order"
        if foreign := set(self.received) - set(self.sent):
            yield f"received what nobody sent: {foreign}"
        # One that came and waits for another that never came is not to be had, and no loss: only
        # what was acknowledged without a gap was promised.
        unread = count
        while unread in self.acknowledged:
            unread += 1
        if unread - count > may_be_unread:
            yield f"acknowledged and not received: {list(range(count, unread))}"
        # What was announced last may never have been sent.
        unsettled = set(self.sent[:-1]) - set(self.outcomes)
        if unsettled and not self.speaker_was_killed:
            yield f"nobody said what became of {unsettled}"


class Ledger:
    """Filled from the lines of all peers."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = defaultdict(Stream)
        self._killed: set[int] = set()

    def enter(self, program: Program) -> None:
        """Enter what one program has said."""
        for line in program.lines:
            if line["event"] in ENTRIES:
                ENTRIES[line["event"]](self.streams[line["stream"]], line)
            if line["event"] == "speaking":
                self.streams[line["stream"]].speaker_was_killed = program.was_killed
            if line["event"] in ("registered", "Established") and program.was_killed:
                self._killed.add(line["id"])

    def faults(self, unread: int) -> Iterator[str]:
        """Say what is wrong; a peer that was killed may not have read ``unread`` messages."""
        for name, stream in self.streams.items():
            may_be_unread = unread if stream.to in self._killed else 0
            yield from (f"{name}: {fault}" for fault in stream.faults(may_be_unread))


def _speaking(stream: Stream, line: Line) -> None:
    stream.to = line["to"]


def _sending(stream: Stream, line: Line) -> None:
    stream.sent.append(line["number"])


def _settled(stream: Stream, line: Line) -> None:
    stream.outcomes[line["number"]] = line["outcome"]


def _received(stream: Stream, line: Line) -> None:
    stream.received.append(line["number"])


ENTRIES = {
    "speaking": _speaking,
    "sending": _sending,
    "settled": _settled,
    "received": _received,
}
