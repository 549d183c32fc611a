"""Reports of nodes, channels, streams and groups, from the samples of a place, without I/O.

A place is an address that serves metrics, or a server. A sample has a name, labels and a value, as
in Prometheus (docs/reference/metrics.md).
``read_samples_untrusted`` makes the reports of a place with metrics, and ``read_status_untrusted``
those of a server. Unknown samples, and values beyond ``LEAST_AMOUNT`` and ``MOST_AMOUNT``, are left
out; missing figures are 0 or None.

Counters grow from the start of the object that they belong to. ``Observation`` has the last two
reports of a place, from which ``growth`` computes increases.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeGuard

from sphtp.core.printable import printable


class Sample(NamedTuple):
    """A sample of a metric: its name, its labels, and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """The report of a server, a client, or a node without a client.

    ``known`` is the number of a client's peers, or of a server's clients. ``groups`` and ``topics``
    are in the report of a client by a server.
    """

    name: str
    kind: str
    state: str = ""
    known: int = 0
    servers: int = 0
    clock_error: float | None = None
    sent: float = 0.0
    received: float = 0.0
    groups: tuple[str, ...] = ()
    topics: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneReport:
    """The report of a lane: its reliable messages that wait, and their bytes.

    They are those from the oldest that is not acknowledged to the newest.
    """

    lane: str
    messages: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelReport:
    """The report of a channel by one of its nodes; times in seconds, sizes in bytes.

    ``blocked`` is the limit that keeps messages from leaving; empty if there is none.
    """

    node: str
    peer: str
    service: str
    channel: str
    packets_sent: float = 0.0
    packets_lost: float = 0.0
    resent: float = 0.0
    bytes_sent: float = 0.0
    bytes_received: float = 0.0
    messages_sent: float = 0.0
    messages_received: float = 0.0
    waiting: int = 0
    unread: int = 0
    round_trip: float | None = None
    loss: float = 0.0
    bandwidth: float | None = None
    window: int = 0
    in_flight: int = 0
    blocked: str = ""
    probes: int = 0
    lanes: tuple[LaneReport, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The labels that distinguish this report from the other channel reports of the same
        place.
        """
        return self.node, self.peer, self.service, self.channel


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverReport:
    """The report of a receiver of a source: datagrams behind the source, and room in bytes."""

    peer: str
    receiver: str
    behind: int
    room: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceReport:
    """The report of a source of a stream; sizes in bytes, repairs in datagrams."""

    node: str
    topics: str
    messages: float = 0.0
    size: float = 0.0
    repairs: float = 0.0
    waiting: int = 0
    repairs_waiting: int = 0
    left_behind: float = 0.0
    receivers: tuple[ReceiverReport, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The labels that distinguish this report from the other source reports of the same
        place.
        """
        return self.node, self.topics


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscriptionReport:
    """The report of a subscription: ``missing`` in datagrams, ``size`` in bytes, else messages."""

    node: str
    peer: str
    topic: str
    receiver: str
    messages: float = 0.0
    size: float = 0.0
    lost: float = 0.0
    missing: int = 0
    waiting: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """The labels that distinguish this report from the other subscription reports of the same
        place.
        """
        return self.node, self.peer, self.topic, self.receiver


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupReport:
    """The report of a group in lock step by one of its members; times in seconds.

    ``is_exchanging`` is True while the member waits for others, whose names are in ``missing``;
    None if it is not reported. ``waits`` maps each member to the total time for which this member
    has waited for it.
    """

    node: str
    group: str
    members: int = 0
    step: int = 0
    is_exchanging: bool | None = None
    missing: tuple[str, ...] = ()
    steps: float = 0.0
    step_seconds: float = 0.0
    waits: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """The labels that distinguish this report from the other group reports of the same
        place.
        """
        return self.node, self.group


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceReport:
    """All reports of a place, or the error of the request.

    ``at`` is the time of the monotonic clock of this machine, in seconds.
    """

    place: str
    at: float
    error: str = ""
    nodes: tuple[NodeReport, ...] = ()
    channels: tuple[ChannelReport, ...] = ()
    sources: tuple[SourceReport, ...] = ()
    subscriptions: tuple[SubscriptionReport, ...] = ()
    groups: tuple[GroupReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """The last report of a place, and an earlier one.

    ``before`` is the report before ``now``, or while ``now`` has an error the last one without. It
    never has an error; None if there is no such report.
    """

    now: PlaceReport
    before: PlaceReport | None = None

    def followed_by(self, report: PlaceReport) -> "Observation":
        """Return the next observation, with a new report."""
        if report.error:
            # The last report without an error shows how long a place has been silent.
            since = self.before if self.now.error else self.now
            return Observation(report, since)
        return Observation(report, None if self.now.error else self.now)

    @property
    def seconds(self) -> float:
        """The time between the two reports, in seconds; 0 if there is only one."""
        return 0.0 if self.before is None else self.now.at - self.before.at

    def earlier(self, kind: str) -> Mapping[tuple[str, ...], Any]:
        """Return the earlier reports of a field such as ``channels``, by their keys."""
        if self.before is None or self.now.error:
            return {}
        return {each.key: each for each in getattr(self.before, kind)}


def growth(now: Any, before: Any, name: str) -> float | None:
    """Return the increase of a counter; None without an earlier value, or after a restart."""
    if before is None:
        return None
    grown: float = getattr(now, name) - getattr(before, name)
    return grown if grown >= 0 else None


# The samples

_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "sphtp_server_": ("server",),
    "sphtp_client_": ("node",),
    "sphtp_clock_": ("node",),
    "sphtp_node_": ("node",),
    "sphtp_channel_": ("node", "peer", "service", "channel"),
    "sphtp_lane_": ("node", "peer", "service", "channel", "lane"),
    "sphtp_source_receiver_": ("node", "topics", "peer", "receiver"),
    "sphtp_source_": ("node", "topics"),
    "sphtp_subscription_": ("node", "peer", "topic", "receiver"),
    "sphtp_group_": ("node", "group"),
    "sphtp_simulation_": ("node",),
}
"""The labels that identify an object, by the prefix of a metric's name; longer prefixes first."""

SIMULATION: Final = "the simulation"
"""The name of the group for the steps of slabs."""

LEAST_AMOUNT: Final = 1e-18
MOST_AMOUNT: Final = 1e18
"""The least and the largest absolute values but 0 that are read: sums and rates stay finite."""

_Figures = dict[str, float]
_Rows = dict[tuple[str, ...], _Figures]


def read_samples_untrusted(place: str, at: float, samples: Iterable[Sample]) -> PlaceReport:
    """Return the reports of a place from its samples."""
    tables = _tabulate(samples)
    return PlaceReport(
        place=place,
        at=at,
        nodes=tuple(_nodes(tables)),
        channels=tuple(_channels(tables)),
        sources=tuple(_sources(tables)),
        subscriptions=tuple(_subscriptions(tables)),
        groups=tuple(_groups(tables)),
    )


_shown = lru_cache(8192)(printable)


@lru_cache(1024)
def _prefix_of(name: str) -> str | None:
    if name.endswith("_bucket"):
        return None
    return next((prefix for prefix in _LABELS if name.startswith(prefix)), None)


def _tabulate(samples: Iterable[Sample]) -> Mapping[str, _Rows]:
    """Return the figures of each object, by prefix and by the values of its labels.

    The value of any further label becomes a part of the figure's name: ``state{active}``.
    """
    tables: defaultdict[str, defaultdict[tuple[str, ...], _Figures]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for name, labels, value in samples:
        prefix = _prefix_of(name)
        if prefix is None or not (value == 0 or LEAST_AMOUNT <= abs(value) <= MOST_AMOUNT):
            continue
        own = _LABELS[prefix]
        key = tuple([_shown(labels.get(label, "")) for label in own])
        if prefix == "sphtp_clock_" and not key[0]:
            continue
        figure = name.removeprefix(prefix)
        if len(labels) > len(own):
            others = [text for label, text in labels.items() if label not in own]
            figure += "".join([f"{{{_shown(text)}}}" for text in others])
        tables[prefix][key][figure] = value
    return tables


def _whole(figures: _Figures, name: str) -> int:
    return int(figures.get(name, 0.0))


def _within(figures: _Figures, name: str) -> Iterator[tuple[str, float]]:
    """Yield the value of a further label, and the figure, for each figure of a metric."""
    for figure, value in figures.items():
        if figure.startswith(f"{name}{{") and figure.endswith("}"):
            yield figure[len(name) + 1 : -1], value


def _state(figures: _Figures) -> str:
    return next((state for state, value in _within(figures, "state") if value), "")


def _nodes(tables: Mapping[str, _Rows]) -> Iterator[NodeReport]:
    for (name,), figures in tables.get("sphtp_server_", {}).items():
        yield NodeReport(
            name=name,
            kind="server",
            state=_state(figures),
            known=_whole(figures, "clients"),
            servers=_whole(figures, "members"),
        )
    clients = tables.get("sphtp_client_", {})
    clocks = tables.get("sphtp_clock_", {})
    for key, figures in tables.get("sphtp_node_", {}).items():
        registered = clients.get(key, {})
        yield NodeReport(
            name=key[0],
            kind="client" if registered else "node",
            state=_state(registered),
            known=_whole(registered, "peers"),
            servers=_whole(registered, "servers"),
            clock_error=clocks.get(key, {}).get("error_seconds"),
            sent=figures.get("datagrams_sent_total", 0.0),
            received=figures.get("datagrams_received_total", 0.0),
        )


def _channels(tables: Mapping[str, _Rows]) -> Iterator[ChannelReport]:
    lanes: defaultdict[tuple[str, ...], list[LaneReport]] = defaultdict(list)
    for labels, figures in tables.get("sphtp_lane_", {}).items():
        lanes[labels[:-1]].append(
            LaneReport(
                lane=labels[-1],
                messages=_whole(figures, "messages_waiting"),
                size=_whole(figures, "waiting_bytes"),
            )
        )
    for key, figures in tables.get("sphtp_channel_", {}).items():
        node, peer, service, channel = key
        # Messages in shared memory are in no packet.
        beside = dict(_within(figures, "shared_memory_bytes_total"))
        yield ChannelReport(
            node=node,
            peer=peer,
            service=service,
            channel=channel,
            packets_sent=figures.get("packets_sent_total", 0.0),
            packets_lost=figures.get("packets_lost_total", 0.0)
            - figures.get("packets_lost_spuriously_total", 0.0),
            resent=figures.get("resent_total", 0.0),
            bytes_sent=figures.get("sent_bytes_total", 0.0) + beside.get("sent", 0.0),
            bytes_received=figures.get("received_bytes_total", 0.0) + beside.get("received", 0.0),
            messages_sent=figures.get("messages_sent_total", 0.0),
            messages_received=figures.get("messages_received_total", 0.0),
            waiting=_whole(figures, "messages_waiting"),
            unread=_whole(figures, "messages_unread"),
            round_trip=figures.get("round_trip_seconds"),
            loss=figures.get("loss_ratio", 0.0),
            bandwidth=figures.get("bandwidth_bytes_per_second"),
            window=_whole(figures, "window_bytes"),
            in_flight=_whole(figures, "in_flight_bytes"),
            blocked=next((by for by, value in _within(figures, "blocked") if value), ""),
            probes=_whole(figures, "probes_unanswered"),
            lanes=tuple(sorted(lanes[key], key=lambda it: (len(it.lane), it.lane))),
        )


def _sources(tables: Mapping[str, _Rows]) -> Iterator[SourceReport]:
    receivers: defaultdict[tuple[str, ...], list[ReceiverReport]] = defaultdict(list)
    for (node, topics, peer, receiver), figures in tables.get("sphtp_source_receiver_", {}).items():
        room = figures.get("room_bytes")
        receivers[node, topics].append(
            ReceiverReport(
                peer=peer,
                receiver=receiver,
                behind=_whole(figures, "behind_datagrams"),
                room=None if room is None else int(room),
            )
        )
    for key, figures in tables.get("sphtp_source_", {}).items():
        yield SourceReport(
            node=key[0],
            topics=key[1],
            messages=figures.get("messages_sent_total", 0.0),
            size=figures.get("sent_bytes_total", 0.0),
            repairs=figures.get("repairs_sent_total", 0.0),
            waiting=_whole(figures, "waiting_bytes"),
            repairs_waiting=_whole(figures, "repairs_waiting"),
            left_behind=figures.get("receivers_left_behind_total", 0.0),
            receivers=tuple(receivers[key]),
        )


def _subscriptions(tables: Mapping[str, _Rows]) -> Iterator[SubscriptionReport]:
    for (node, peer, topic, receiver), figures in tables.get("sphtp_subscription_", {}).items():
        yield SubscriptionReport(
            node=node,
            peer=peer,
            topic=topic,
            receiver=receiver,
            messages=figures.get("messages_delivered_total", 0.0),
            size=figures.get("received_bytes_total", 0.0),
            lost=figures.get("messages_lost_total", 0.0),
            missing=_whole(figures, "datagrams_missing"),
            waiting=_whole(figures, "messages_waiting"),
        )


def _groups(tables: Mapping[str, _Rows]) -> Iterator[GroupReport]:
    for (node, group), figures in tables.get("sphtp_group_", {}).items():
        yield GroupReport(
            node=node,
            group=group,
            members=_whole(figures, "members"),
            step=_whole(figures, "steps_total"),
            is_exchanging=bool(figures["exchanging"]) if "exchanging" in figures else None,
            missing=tuple(name for name, value in _within(figures, "missing") if value),
            steps=figures.get("step_seconds_count", 0.0),
            step_seconds=figures.get("step_seconds_sum", 0.0),
            waits=dict(_within(figures, "wait_seconds_sum")),
        )
    # The slabs of a simulation step together as the members of a group do.
    for (node,), figures in tables.get("sphtp_simulation_", {}).items():
        yield GroupReport(
            node=node,
            group=SIMULATION,
            step=_whole(figures, "steps_total"),
            steps=figures.get("step_seconds_count", 0.0),
            step_seconds=figures.get("step_seconds_sum", 0.0),
            waits=dict(_within(figures, "wait_seconds_sum")),
        )


# The status of a server


def read_status_untrusted(place: str, at: float, status: Mapping[str, Any]) -> PlaceReport:
    """Return the report of a server from its status: the servers of its view, and its clients."""
    number, state = status.get("id"), printable(str(status.get("state") or ""))
    clients = [row for row in _rows_of(status.get("clients")) if _is_number(row.get("id"))]
    view = status.get("view")
    members = _rows_of(view.get("members") if isinstance(view, dict) else None)
    nodes = [
        NodeReport(
            name=_hexadecimal(member["id"]),
            kind="server",
            state=printable(str(member.get("state") or "")),
            known=len(clients) if member["id"] == number else 0,
            servers=len(members),
        )
        for member in members
        if _is_number(member.get("id"))
    ]
    if not nodes and _is_number(number):
        own = NodeReport(name=_hexadecimal(number), kind="server", state=state, known=len(clients))
        nodes.append(own)
    for row in clients:
        name, topics = row.get("name"), row.get("topics")
        groups = row.get("groups")
        nodes.append(
            NodeReport(
                name=printable(name) if isinstance(name, str) and name else _hexadecimal(row["id"]),
                kind="client",
                state="registered",
                groups=tuple(printable(str(each)) for each in groups)
                if isinstance(groups, list)
                else (),
                topics=topics if _is_number(topics) else 0,
            )
        )
    return PlaceReport(place=place, at=at, nodes=tuple(nodes))


def _rows_of(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 64


def _hexadecimal(number: int) -> str:
    return f"{number:#010x}"
