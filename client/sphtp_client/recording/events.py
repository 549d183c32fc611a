"""The events that the verbs on recordings print: lines, or JSON objects with ``--json``."""

import sys
from collections.abc import Callable
from typing import Literal

from sphtp_client.program import write_line
from sphtp_client.simulation.reports import EventRecord, Failed


class RecordingStarted(EventRecord):
    """The event that a recorder has registered with the cluster, and subscribes."""

    event: Literal["recording"] = "recording"
    file: str
    id: int

    def text(self) -> str:
        """Return the line for people."""
        return f"recording to {self.file}; Ctrl-C ends it"


class OriginJoined(EventRecord):
    """The event that the first message of a source, or of a member of a group, has arrived."""

    event: Literal["joined"] = "joined"
    kind: str
    name: str
    peer: str

    def text(self) -> str:
        """Return the line for people."""
        return f"{self.kind} {self.name} of {self.peer}"


class OriginFailed(EventRecord):
    """The event that a source cannot be joined at present, with the cause."""

    event: Literal["source_failed"] = "source_failed"
    kind: str
    name: str
    peer: str
    why: str

    def text(self) -> str:
        """Return the line for people."""
        return f"{self.kind} {self.name} of {self.peer} cannot be joined: {self.why}"


class MessagesLost(EventRecord):
    """The event that messages are missing in the recording, with their numbers.

    While the recorder's queue is full, only the first missing messages of each source cause it. The
    summary counts all.
    """

    event: Literal["lost"] = "lost"
    kind: str
    name: str
    peer: str
    first: int
    last: int
    count: int
    reason: str

    def text(self) -> str:
        """Return the line for people."""
        span = f"{self.first} to {self.last}"
        return f"lost: {self.name} of {self.peer}, {span}: {self.reason}"


class RecordingSummary(EventRecord):
    """The event at the end of a recording: its figures."""

    event: Literal["summary"] = "summary"
    file: str
    messages: int
    bytes: int
    lost: dict[str, int]
    undecodable: int

    def text(self) -> str:
        """Return the line for people."""
        lost = ", ".join(f"{count} lost: {reason}" for reason, count in self.lost.items())
        parts = [f"{self.messages} messages in {self.bytes} bytes", lost or "none lost"]
        if self.undecodable:
            parts.append(f"{self.undecodable} have no form in a recording and were left out")
        return "; ".join(parts)


class ReplayStarted(EventRecord):
    """The event that a replay begins. ``seconds`` is the length of a lap; None for a group."""

    event: Literal["replaying"] = "replaying"
    file: str
    topics: list[str]
    seconds: float | None

    def text(self) -> str:
        """Return the line for people."""
        span = "" if self.seconds is None else f"{self.seconds:.3f} s of "
        return f"replaying {span}{', '.join(self.topics) or 'nothing'}"


class RecordingCut(EventRecord):
    """The event that the file of a recording is incomplete or damaged; the text names the place."""

    event: Literal["cut"] = "cut"
    text_of_cut: str

    def text(self) -> str:
        """Return the line for people."""
        return self.text_of_cut


class ReplaySummary(EventRecord):
    """The event at the end of a replay.

    ``latest`` is the longest delay of a message behind its schedule, in seconds.
    """

    event: Literal["summary"] = "summary"
    messages: int
    laps: int
    unreadable: int
    latest: float

    def text(self) -> str:
        """Return the line for people."""
        parts = [f"{self.messages} messages", f"the latest {1000 * self.latest:.1f} ms late"]
        if self.unreadable:
            parts.append(f"{self.unreadable} cannot be read and were left out")
        return "; ".join(parts)


class StepDiffers(EventRecord):
    """The event that the changed member's contribution to a step differs from the recorded one."""

    event: Literal["difference"] = "difference"
    step: int
    what: str

    def text(self) -> str:
        """Return the line for people."""
        return f"step {self.step}: {self.what}"


class StepsSummary(EventRecord):
    """The event at the end of a replay of steps; ``equal`` of the ``steps`` did not differ."""

    event: Literal["summary"] = "summary"
    group: str
    member: str
    first: int
    steps: int
    equal: int
    reason: str

    def text(self) -> str:
        """Return the line for people."""
        end = f"; it ended because {self.reason}" if self.reason else ""
        return f"{self.steps} steps from step {self.first}; {self.equal} are equal bit by bit{end}"


RecordingEvent = (
    RecordingStarted
    | OriginJoined
    | OriginFailed
    | MessagesLost
    | RecordingSummary
    | RecordingCut
    | ReplayStarted | ReplaySummary | StepDiffers | StepsSummary
)  # fmt: skip

Show = Callable[[RecordingEvent], None]


def shown_as(*, json: bool) -> Show:
    """Return a function that writes events to standard output, as lines for people or as JSON."""

    def show(event: RecordingEvent) -> None:
        write_line(sys.stdout, event.model_dump_json() if json else event.text())

    return show


def complain(error: Exception, *, json: bool) -> None:
    """Print the error that ended a verb."""
    if json:
        write_line(sys.stdout, Failed(message=str(error)).model_dump_json())
    else:
        write_line(sys.stderr, f"failed: {error}")
