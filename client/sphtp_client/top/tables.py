"""The tables of nodes, channels, lanes, streams and groups: rows, sorted and filtered, without I/O.

A cell has a value, by which rows are sorted, and the text that is shown. A view has a name, its
columns, and a function that makes rows of observations. A column has a rank: a narrow terminal
leaves out the columns of the highest ranks, so that no figure is cut.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sphtp.core.printable import in_bytes, in_seconds, listed, percent, printable
from sphtp_client.top.causes import FINE_STATES
from sphtp_client.top.model import (
    ChannelReport,
    GroupReport,
    NodeReport,
    Observation,
    SourceReport,
    SubscriptionReport,
    growth,
)

LONGEST_CELL: Final = 40
"""The characters of a text, after which a cell cuts it."""

GAP: Final = 2
"""The blanks between two columns."""


class Cell(NamedTuple):
    """A cell: the value by which rows are sorted, or None, and the text that is shown."""

    value: float | str | None
    text: str


class TableRow(NamedTuple):
    """A row, with a unique id. ``about`` has the names of the nodes that it concerns."""

    id: str
    cells: tuple[Cell, ...]
    about: tuple[str, ...] = ()


class Column(NamedTuple):
    """The title of a column, and its rank; a column of rank 0 is always shown."""

    title: str
    rank: int = 0


Rows = Iterator[TableRow]


@dataclass(frozen=True)
class View:
    """A table: its columns, its rows, and the column by which it is sorted at first."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Sequence[Observation]], Rows]
    sorted_by: str
    descends: bool = True

    def index(self, title: str) -> int:
        """Return the index of the column with a title."""
        return next(at for at, column in enumerate(self.columns) if column.title == title)


def word(text: str) -> Cell:
    """Return the cell of a text; empty texts are sorted to the end."""
    shown = printable(text, LONGEST_CELL)
    return Cell(shown or None, shown)


def whole(number: float | None) -> Cell:
    """Return the cell of a count."""
    return Cell(number, "" if number is None else f"{number:.0f}")


def rate(number: float | None) -> Cell:
    """Return the cell of a rate per second."""
    if number is None:
        return Cell(None, "")
    return Cell(number, f"{number:.1f}" if 0 < number < 10 else f"{number:.0f}")


def size(number: float | None) -> Cell:
    """Return the cell of a number of bytes, or bytes per second."""
    return Cell(number, "" if number is None else in_bytes(number))


def duration(number: float | None) -> Cell:
    """Return the cell of a time in seconds."""
    return Cell(number, "" if number is None else in_seconds(number))


def share(number: float | None) -> Cell:
    """Return the cell of a share from 0 to 1, which is shown in percent."""
    return Cell(number, "" if number is None else percent(number) if number else "0 %")


class Growth:
    """The growth per second of the counters in a report."""

    def __init__(self, now: Any, before: Any, seconds: float) -> None:
        self._now = now
        self._before = before
        self._seconds = seconds

    def of(self, name: str) -> float | None:
        """Return the growth of a counter per second; None if it is unknown."""
        grown = growth(self._now, self._before, name)
        return None if grown is None or self._seconds <= 0 else grown / self._seconds


def _each(
    observations: Iterable[Observation], kind: str
) -> Iterator[tuple[str, Any, Growth, Any, float]]:
    """Yield place, report, growth, earlier report and seconds for all reports of a kind."""
    for one in observations:
        earlier = one.earlier(kind)
        for state in getattr(one.now, kind):
            before = earlier.get(state.key)
            yield one.now.place, state, Growth(state, before, one.seconds), before, one.seconds


def _id(*parts: str) -> str:
    return "\0".join(parts)


# Peers: the sums of each node

PEERS: Final = (
    *(Column("peer"), Column("state"), Column("out", 1), Column("in", 1), Column("waiting", 1)),
    *(Column("unread", 2), Column("loss", 2), Column("steps/s", 1), Column("channels", 3)),
    *(Column("knows", 4), Column("groups", 4), Column("kind", 3), Column("place", 5)),
)


class _Total:
    """The sums over the channels and groups of a node."""

    def __init__(self) -> None:
        self.out: float | None = None
        self.into: float | None = None
        self.waiting = 0
        self.unread = 0
        self.channels = 0
        self.sent: float | None = None
        self.lost: float | None = None
        self.steps: float | None = None
        self.groups: dict[str, None] = {}

    def add(self, channel: ChannelReport, grown: Growth) -> None:
        self.channels += 1
        self.waiting += channel.waiting
        self.unread += channel.unread
        self.out = _sum(self.out, grown.of("bytes_sent"))
        self.into = _sum(self.into, grown.of("bytes_received"))
        self.sent = _sum(self.sent, grown.of("packets_sent"))
        self.lost = _sum(self.lost, grown.of("packets_lost"))


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0.0) + other


def _peers(observations: Sequence[Observation]) -> Rows:
    """Yield a row for each silent place and each node; one if a server reports the node as well."""
    reported: dict[str, NodeReport] = {}
    for one in observations:
        for node in one.now.nodes:
            if node.state == "registered":
                reported.setdefault(node.name, node)
    shown = set[str]()
    for one in observations:
        state = one.now
        if state.error:
            cells = _peer_cells(f"({state.place})", "no answer", _Total(), None, state.place)
            yield TableRow(_id(state.place), cells)
        totals = _totals(one)
        for node in state.nodes:
            if node.state == "registered" or (node.kind == "server" and node.name in shown):
                continue
            shown.add(node.name)
            known = reported.get(node.name)
            total = totals.get(node.name, _Total())
            total.groups.update(dict.fromkeys(known.groups if known else ()))
            cells = _peer_cells(node.name, node.state, total, node, state.place)
            yield TableRow(_id(node.kind, node.name), cells, (node.name,))
    for name in [name for name in reported if name not in shown]:
        total = _Total()
        total.groups.update(dict.fromkeys(reported[name].groups))
        cells = _peer_cells(name, reported[name].state, total, reported[name], "")
        yield TableRow(_id("client", name), cells, (name,))


def _totals(one: Observation) -> Mapping[str, _Total]:
    totals: defaultdict[str, _Total] = defaultdict(_Total)
    for _, channel, grown, _, _ in _each([one], "channels"):
        totals[channel.node].add(channel, grown)
    for _, group, grown, _, _ in _each([one], "groups"):
        totals[group.node].steps = _sum(totals[group.node].steps, grown.of("step"))
        totals[group.node].groups[group.group] = None
    return totals


def _peer_cells(
    name: str, state: str, total: _Total, node: NodeReport | None, place: str
) -> tuple[Cell, ...]:
    sent = total.sent or 0.0
    return (
        word(name),
        word("ok" if state in FINE_STATES and state else state),
        size(total.out),
        size(total.into),
        whole(total.waiting if total.channels else None),
        whole(total.unread if total.channels else None),
        share((total.lost or 0.0) / sent if sent else None),
        rate(total.steps),
        whole(total.channels if total.channels else None),
        whole(None if node is None else node.known),
        word(", ".join(total.groups)),
        word("" if node is None else node.kind),
        word(place),
    )


# Channels and lanes

CHANNELS: Final = (
    *(Column("from"), Column("to"), Column("waiting"), Column("held by", 1), Column("out", 1)),
    *(Column("in", 2), Column("rtt", 1), Column("loss", 2), Column("unread", 2)),
    *(Column("messages/s", 3), Column("resent/s", 4), Column("window", 3)),
    *(Column("in flight", 4), Column("service", 3), Column("channel", 5)),
)


def _channels(observations: Sequence[Observation]) -> Rows:
    for place, state, grown, _, _ in _each(observations, "channels"):
        channel: ChannelReport = state
        cells = (
            word(channel.node),
            word(channel.peer),
            whole(channel.waiting),
            word(channel.blocked),
            size(grown.of("bytes_sent")),
            size(grown.of("bytes_received")),
            duration(channel.round_trip),
            share(channel.loss),
            whole(channel.unread),
            rate(grown.of("messages_sent")),
            rate(grown.of("resent")),
            size(channel.window),
            size(channel.in_flight),
            word(channel.service),
            word(channel.channel),
        )
        yield TableRow(_id(place, *channel.key), cells, (channel.node, channel.peer))


LANES: Final = (
    *(Column("from"), Column("to"), Column("lane"), Column("waiting"), Column("bytes", 1)),
    *(Column("held by", 1), Column("service", 2), Column("channel", 3)),
)


def _lanes(observations: Sequence[Observation]) -> Rows:
    for place, state, _, _, _ in _each(observations, "channels"):
        channel: ChannelReport = state
        for lane in channel.lanes:
            cells = (
                word(channel.node),
                word(channel.peer),
                word(lane.lane),
                whole(lane.messages),
                size(lane.size),
                word(channel.blocked if lane.messages else ""),
                word(channel.service),
                word(channel.channel),
            )
            about = (channel.node, channel.peer)
            yield TableRow(_id(place, *channel.key, lane.lane), cells, about)


# Streams: sources and subscriptions

STREAMS: Final = (
    *(Column("topic"), Column("from"), Column("to"), Column("messages/s"), Column("bytes/s", 1)),
    *(Column("behind", 1), Column("room", 2), Column("waiting", 2), Column("missing", 2)),
    *(Column("lost", 1), Column("repairs/s", 3)),
)


def _streams(observations: Sequence[Observation]) -> Rows:
    for place, state, grown, _, _ in _each(observations, "sources"):
        source: SourceReport = state
        behind = [it.behind for it in source.receivers]
        rooms = [it.room for it in source.receivers if it.room is not None]
        slowest = max(source.receivers, key=lambda it: it.behind, default=None)
        others = f" +{len(source.receivers) - 1}" if len(source.receivers) > 1 else ""
        cells = (
            word(source.topics),
            word(source.node),
            word("" if slowest is None else f"{slowest.peer}{others}"),
            rate(grown.of("messages")),
            size(grown.of("size")),
            whole(max(behind, default=None)),
            size(min(rooms, default=None)),
            size(source.waiting),
            whole(None),
            whole(None),
            rate(grown.of("repairs")),
        )
        about = (source.node, *(it.peer for it in source.receivers))
        yield TableRow(_id(place, "source", *source.key), cells, about)
    for place, state, grown, _, _ in _each(observations, "subscriptions"):
        subscription: SubscriptionReport = state
        cells = (
            word(subscription.topic),
            word(subscription.peer),
            word(f"at {subscription.node}"),
            rate(grown.of("messages")),
            size(grown.of("size")),
            whole(None),
            size(None),
            whole(subscription.waiting),
            whole(subscription.missing),
            whole(subscription.lost),
            rate(None),
        )
        about = (subscription.node, subscription.peer)
        yield TableRow(_id(place, "subscription", *subscription.key), cells, about)


# Groups in lock step

GROUPS: Final = (
    *(Column("group"), Column("member"), Column("step"), Column("steps/s"), Column("time", 1)),
    *(Column("waits", 1), Column("waits for"), Column("mostly for", 2), Column("members", 3)),
)


def _groups(observations: Sequence[Observation]) -> Rows:
    for place, state, grown, before, seconds in _each(observations, "groups"):
        group: GroupReport = state
        steps, times = growth(group, before, "steps"), growth(group, before, "step_seconds")
        waited = {} if before is None else waited_for(group, before)
        total = sum(waited.values())
        most = max(waited, key=lambda it: waited[it]) if total > 0 else ""
        cells = (
            word(group.group),
            word(group.node),
            whole(group.step),
            rate(grown.of("step")),
            duration(times / steps if steps and times is not None else None),
            share(min(total / seconds, 1.0) if seconds > 0 else None),
            word(_present_wait(group)),
            word(most),
            whole(group.members or None),
        )
        yield TableRow(_id(place, *group.key), cells, (group.node, *group.missing))


def _present_wait(group: GroupReport) -> str:
    if group.is_exchanging is None:
        return ""
    return listed(group.missing, 2) if group.is_exchanging else "(computes)"


def waited_for(now: GroupReport, before: GroupReport) -> dict[str, float]:
    """Return the seconds for which a member waited for each other member between two reports."""
    return {
        member: max(seconds - before.waits.get(member, 0.0), 0.0)
        for member, seconds in now.waits.items()
    }


VIEWS: Final = (
    View("peers", PEERS, _peers, "peer", descends=False),
    View("channels", CHANNELS, _channels, "waiting"),
    View("lanes", LANES, _lanes, "waiting"),
    View("streams", STREAMS, _streams, "messages/s"),
    View("groups", GROUPS, _groups, "group", descends=False),
)


# Sorting, filtering and layout


def arranged(
    rows: Iterable[TableRow], column: int, *, descends: bool, wanted: str = ""
) -> list[TableRow]:
    """Return the rows with a text in any cell, sorted by a column, rows without a value last."""
    text = wanted.casefold()
    fitting = [
        row for row in rows if not text or any(text in cell.text.casefold() for cell in row.cells)
    ]
    known = [row for row in fitting if row.cells[column].value is not None]
    unknown = [row for row in fitting if row.cells[column].value is None]

    def order(row: TableRow) -> tuple[str, float, str]:
        value = row.cells[column].value
        return ("", value, row.id) if isinstance(value, int | float) else (f"{value}", 0, row.id)

    return [*sorted(known, key=order, reverse=descends), *unknown]


def fitting_columns(view: View, rows: Sequence[TableRow], width: int) -> list[int]:
    """Return the indexes of the columns that fit into a width; low ranks take precedence."""
    widths = [
        GAP + max([len(column.title) + GAP, *(len(row.cells[at].text) for row in rows)])
        for at, column in enumerate(view.columns)
    ]
    chosen = {at for at, column in enumerate(view.columns) if column.rank == 0}
    used = sum(widths[at] for at in chosen)
    for at in sorted(range(len(widths)), key=lambda it: view.columns[it].rank):
        if at not in chosen and used + widths[at] <= width:
            chosen.add(at)
            used += widths[at]
    return sorted(chosen)


def as_lines(view: View, rows: Sequence[TableRow]) -> Iterator[str]:
    """Yield the lines of a table as plain text."""
    texts = [[column.title for column in view.columns]]
    texts += [[cell.text for cell in row.cells] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        yield (" " * GAP).join(cells).rstrip()
