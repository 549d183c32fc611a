"""The metrics of servers, clients and nodes, which ``web`` serves to Prometheus.

Nothing is counted for the metrics alone: each scrape reads the same statistics as programs do. So
the series of a channel, stream or group end with it, and the number of series is bounded by the
number of open ones. ``METRICS`` lists every metric with its meaning, for the responses and for the
reference.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from sphtp.core.channel.observer import find_obstacle
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.server_table import ServerState
from sphtp.core.group.steps import TimeHistogram
from sphtp.core.printable import peer_label, printable
from sphtp.errors import SettingsError, WireError
from sphtp.shell.client import Client
from sphtp.shell.clock import Clock
from sphtp.shell.node import Node
from sphtp.shell.server import Server

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection
    from sphtp.core.group.steps import StepStatistics
    from sphtp.shell.group import LockstepGroup
    from sphtp.shell.hosted_streams import HostedSource, HostedSubscription

Values = Mapping[tuple[str, ...], float | TimeHistogram]
"""The values of a metric, by the values of its labels."""


class MetricText(NamedTuple):
    """A metric: its name, its labels, and its meaning."""

    name: str
    labels: tuple[str, ...]
    text: str
    fields: str | Mapping[str, str] = ""
    """The field of the statistics, or the fields by the value of the last label."""

    @property
    def kind(self) -> str:
        """The type of the metric, which follows from its name."""
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith(OF_TIMES) else "gauge"


def _table(
    prefix: str, labels: tuple[str, ...], *rows: tuple[str, str | Mapping[str, str], str]
) -> tuple[MetricText, ...]:
    """Return metrics that are fields of one object.

    A metric of several fields has a further label, which stands in braces behind the name.
    """
    return tuple(
        MetricText(
            f"{prefix}_{name.partition('{')[0]}",
            (*labels, *([name.partition("{")[2][:-1]] if "{" in name else [])),
            text,
            fields,
        )
        for name, fields, text in rows
    )


def _each(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


NOT_OF_NAMES: Final = re.compile(r"\W", re.ASCII)
"""The characters that a name of a metric must not have."""

OF_TIMES: Final = ("_step_seconds", "_exchange_seconds", "_wait_seconds")
"""The ends of the names of histograms."""

SERVER: Final = _table(
    "sphtp_server",
    ("server",),
    ("connections{socket}", {"pub": "publishing_to", "sub": "receiving_from"},
     "Connections of the message bus."),
    ("connections_ended_total", "connections_ended", "Connections of the SUB socket that ended."),
    ("connections_refused_total", "connections_refused",
     "Connections that were refused because of the limit max_connections."),
    ("events_dropped_total", "events_dropped", "Events that a slow listener missed."),
)  # fmt: skip

CONTROL: Final = (
    MetricText("sphtp_server_state", ("server", "state"), "1 for its state, 0 for others."),
    MetricText("sphtp_server_clients", ("server",), "Registered clients, here or elsewhere."),
    MetricText("sphtp_server_members", ("server",), "Servers in its view, itself included."),
    MetricText(
        "sphtp_server_refused_total", ("server", "reason"),
        "Control messages and connections that were dropped or refused, and other rare events.",
    ),
    MetricText("sphtp_client_state", ("node", "state"), "1 for its state, 0 for others."),
    MetricText(
        "sphtp_client_peers", ("node",), "Other clients that this one watches, or has looked up."
    ),
    MetricText("sphtp_client_servers", ("node",), "Live servers."),
    MetricText(
        "sphtp_client_refused_total", ("node", "reason"),
        "Control messages that were dropped, and other rare events.",
    ),
    MetricText(
        "sphtp_client_events_dropped_total", ("node",), "Events that a slow listener missed."
    ),
    MetricText("sphtp_clock_error_seconds", ("node",), "Bound of the error of the cluster's time."),
    MetricText("sphtp_build_info", ("version",), "1, with the version of this program."),
)  # fmt: skip

REQUESTS: Final = _table(
    "sphtp_requests",
    ("node",),
    ("sent_total", "sent", "Requests that left."),
    ("ended_total{outcome}", {"reply": "replies", "error": "errors", "cancelled": "cancelled",
     "lost": "lost"}, "Requests of this side that ended."),
    ("late_total", "late", "Answers that arrived after their caller had stopped waiting."),
    ("received_total", "received", "Requests of peers."),
    ("answered_total", "answered", "Replies and errors for peers."),
    ("failed_total{reason}", _each("refused", "crashed", "malformed"),
     "Requests of peers that were refused or crashed their handler, and malformed messages."),
)  # fmt: skip

NODE: Final = _table(
    "sphtp_node",
    ("node",),
    ("datagrams_sent_total", "sent", "Datagrams sent."),
    ("datagrams_received_total", "received", "Datagrams received."),
    ("socket_calls_total{direction}", {"send": "send_calls", "receive": "receive_calls"},
     "System calls that sent or received datagrams."),
    ("socket_errors_total{direction}", {"send": "send_errors", "receive": "receive_errors"},
     "Errors of sending or receiving datagrams."),
    ("datagrams_rejected_total{reason}", _each(
        "malformed", "unknown", "in_the_clear", "forged", "replayed", "strangers", "denied",
        "stream_malformed", "stream_unknown", "stream_forged", "stream_replayed",
        "stream_unknown_key", "stream_foreign"),
     "Datagrams that reached no channel or stream."),
    ("channels_refused_total{reason}", {
        "full": "refused_full", "backlog": "over_backlog", "max_channels": "over_max_channels",
        "wrong_peer": "refused_wrong_peer", "closed": "refused_closed", "schema": "refused_schema",
        "sealed": "refused_sealed", "version": "refused_version",
        "handshake_rate": "handshakes_over_rate", "handshake_limit": "handshakes_over_limit"},
     ("Channels of peers that were refused, or ended to make room. Each refusal by `backlog` or "
      "`max_channels` counts as `full`, too. `sealed` counts sealed attempts at a node in the "
      "clear, `version` sealed attempts of another version of the protocol, `handshake_rate` "
      "messages of handshakes.")),
    ("handshakes_total", "handshakes", "Handshakes of peers that the node processed."),
    ("paths_changed_total", "paths_changed", "Channels that moved to another address of a peer."),
    ("limits_reached_total{limit}", {
        name: f"over_{name}" for name in (
            "receive_buffer", "receive_buffer_bytes", "max_message", "unreliable_buffer",
            "node_buffer_bytes")},
     "Number of times that packets or messages were dropped because of a setting."),
    ("sending_held_total{limit}", {
        "receive_buffer": "held_by_receive_buffer",
        "receive_buffer_bytes": "held_by_receive_buffer_bytes"},
     "Number of times that sending waited for a peer to read."),
)  # fmt: skip

_CHANNEL_LABELS: Final = ("node", "peer", "service", "channel")

CHANNEL: Final = _table(
    "sphtp_channel",
    _CHANNEL_LABELS,
    ("packets_sent_total", "sent", "Packets sent."),
    ("packets_received_total", "received", "Packets received."),
    ("sent_bytes_total", "bytes_sent", "Bytes of packets sent, without those of the seal."),
    ("received_bytes_total", "bytes_received",
     "Bytes of packets received, without those of the seal."),
    ("packets_lost_total", "lost", "Packets that were declared lost."),
    ("packets_lost_spuriously_total", "lost_in_appearance",
     "Packets that were declared lost, and acknowledged later."),
    ("packets_rejected_total{reason}", _each(
        "duplicates", "too_old", "too_early", "malformed", "forged_acks", "foreign_address"),
     "Packets of the peer that were not accepted. `malformed` includes `forged_acks`."),
    ("resent_total", "resent", "Messages and fragments that were queued to be sent again."),
    ("messages_sent_total", "messages_sent", "Messages sent."),
    ("messages_received_total", "messages_received",
     "Messages that the program received, or that its channel has taken ahead of it, 64 at most."),
    ("messages_dropped_total{reason}", {
        "undecodable": "undecodable", "unreliable": "unreliable_dropped"},
     "Messages dropped: received and undecodable, or unreliable and not sent, or not read."),
    ("shared_memory_messages_total{direction}", {
        "sent": "shared_memory_sent", "received": "shared_memory_received"},
     "Messages that travelled by shared memory; the other metrics of messages include them."),
    ("shared_memory_bytes_total{direction}", {
        "sent": "shared_memory_bytes_sent", "received": "shared_memory_bytes_received"},
     "Bytes of messages that travelled by shared memory, which are in no packet."),
    ("messages_waiting", "waiting",
     "Reliable messages from the oldest one of each lane that is not acknowledged to the newest."),
    ("messages_unread", "unread",
     "Messages that have arrived, and that neither the program nor its channel has taken."),
    ("round_trip_seconds", "rtt", "Smoothed round trip."),
    ("round_trip_deviation_seconds", "rtt_deviation", "Mean deviation of the round trip."),
    ("loss_ratio", "loss", "Smoothed share of packets that are lost."),
    ("bandwidth_bytes_per_second", "bandwidth", "Highest recent rate of delivery."),
    ("window_bytes", "window", "Congestion window."),
    ("datagram_bytes", "datagram_size",
     "Size of the largest datagrams at present, except MTU probes, without the bytes of the seal."),
)  # fmt: skip

LANE: Final = (
    MetricText(
        "sphtp_lane_messages_waiting", (*_CHANNEL_LABELS, "lane"),
        "Reliable messages of a lane from the oldest one that is not acknowledged to the newest.",
    ),
    MetricText(
        "sphtp_lane_waiting_bytes", (*_CHANNEL_LABELS, "lane"),
        "Bytes of the reliable messages of a lane that the peer has not acknowledged.",
    ),
)  # fmt: skip

OBSTACLE: Final = (
    MetricText(
        "sphtp_channel_in_flight_bytes", _CHANNEL_LABELS,
        "Bytes that were sent, and are neither acknowledged nor lost.",
    ),
    MetricText(
        "sphtp_channel_blocked", (*_CHANNEL_LABELS, "by"),
        "1 for the limit that keeps messages from leaving, if one does: `credit` of the peer, "
        "`window`, `pacing`, `sequences` or `lane`.",
    ),
    MetricText(
        "sphtp_channel_probes_unanswered", _CHANNEL_LABELS,
        "Probes that left since the peer last acknowledged anything.",
    ),
)  # fmt: skip

SOURCE: Final = _table(
    "sphtp_source",
    ("node", "topics"),
    ("messages_sent_total", "messages_sent", "Messages sent."),
    ("datagrams_sent_total", "datagrams_sent",
     "Datagrams of new data sent, each counted once for all receivers."),
    ("sent_bytes_total", "bytes_sent", "Bytes of these datagrams, without header and seal."),
    ("repairs_sent_total", "repairs_sent", "Datagrams sent again."),
    ("repair_sent_bytes_total", "repair_bytes_sent", "Bytes sent again."),
    ("naks_received_total", "naks_received", "Datagrams that receivers reported missing."),
    ("naks_unserved_total{reason}", {
        "ignored": "naks_ignored", "rx_delay": "naks_rx_delay", "shed": "naks_shed",
        "out_of_window": "naks_out_of_window", "over_budget": "naks_over_budget"},
     ("Datagrams that receivers reported missing, and that the source did not repair at once: it "
      "had just sent a repair (`ignored`), the repair waits for its turn (`rx_delay`), too many "
      "repairs waited (`shed`), it had dropped the datagram (`out_of_window`), or the receiver "
      "had requested too many (`over_budget`).")),
    ("receivers", "receivers", "Receivers."),
    ("receivers_left_behind_total", "left_behind",
     "Number of times that the source stopped waiting for a receiver."),
    ("receivers_refused_total", "receivers_refused", "Receivers beyond the limit."),
    ("window_datagrams", "window_datagrams", "Datagrams kept for repairs."),
    ("window_bytes", "window_bytes", "Bytes kept for repairs."),
    ("waiting_bytes", "waiting_bytes",
     "Bytes of new data that wait for the data rate or for receivers."),
    ("repairs_waiting", "waiting_repairs", "Datagrams that wait for the repair rate."),
)  # fmt: skip

RECEIVER: Final = (
    MetricText(
        "sphtp_source_receiver_behind_datagrams", ("node", "topics", "peer", "receiver"),
        "Sent datagrams whose arrival a receiver has not reported.",
    ),
    MetricText(
        "sphtp_source_receiver_room_bytes", ("node", "topics", "peer", "receiver"),
        "Bytes for which a receiver had room at its last report.",
    ),
)  # fmt: skip

_SUBSCRIPTION_LABELS: Final = ("node", "peer", "topic", "receiver")

TRANSPORT: Final = _table(
    "sphtp_subscription",
    _SUBSCRIPTION_LABELS,
    ("datagrams_received_total", "datagrams", "Datagrams received."),
    ("received_bytes_total", "bytes", "Bytes received."),
    ("naks_sent_total", "naks_sent", "Datagrams that were reported missing to the source."),
    ("datagrams_missed_total", "lost", "Datagrams that were ever missing."),
    ("datagrams_recovered_total{by}", {"repair": "recovered", "reordering": "out_of_order"},
     "Missing datagrams that arrived later."),
    ("datagrams_unrecovered_total{reason}", {
        name: f"unrecovered_{name}" for name in ("txw", "tmo", "ncf", "map", "end")},
     ("Missing datagrams that the receiver has given up: the source has dropped them (`txw`), they "
      "were missing for too long (`tmo`), the source refused a repair (`ncf`), too many ranges "
      "were missing (`map`), or the session ended (`end`).")),
    ("datagrams_missing", "pending", "Datagrams that are missing now."),
    ("datagrams_rejected_total{reason}", _each(
        "duplicates", "before_start", "after_end", "malformed", "implausible"),
     "Datagrams that were not accepted."),
)  # fmt: skip

DELIVERY: Final = _table(
    "sphtp_subscription",
    _SUBSCRIPTION_LABELS,
    ("messages_delivered_total", "delivered", "Messages delivered."),
    ("messages_lost_total", "lost", "Messages whose loss was reported."),
    ("messages_waiting", "waiting", "Messages, losses and fragments that wait for earlier ones."),
    ("waiting_bytes", "waiting_bytes", "Bytes of those that wait for earlier ones."),
)  # fmt: skip

GROUP: Final = (
    MetricText("sphtp_group_members", ("node", "group"), "Members of the present step."),
    MetricText("sphtp_group_steps_total", ("node", "group"), "Number of the present step."),
    MetricText(
        "sphtp_group_step_seconds", ("node", "group"),
        "Time from the end of a step to the end of the next.",
    ),
    MetricText(
        "sphtp_group_exchange_seconds", ("node", "group"),
        "Time from this member's contribution to the end of the step.",
    ),
    MetricText(
        "sphtp_group_wait_seconds", ("node", "group", "member"),
        "Time of an exchange, by the member whose contribution came last; without exchanges for "
        "which all others had contributed before this member, and those that a change of the "
        "members completed.",
    ),
    MetricText(
        "sphtp_group_exchanging", ("node", "group"),
        "1 while this member has contributed and waits for others, 0 between two steps.",
    ),
    MetricText(
        "sphtp_group_missing", ("node", "group", "member"),
        "1 for a member whose contribution to the present step has not come.",
    ),
    MetricText("sphtp_group_malformed_total", ("node", "group"), "Malformed messages of members."),
)  # fmt: skip

METRICS: Final = {
    metric.name: metric
    for metric in (
        *CONTROL, *SERVER, *REQUESTS, *NODE, *CHANNEL, *LANE, *OBSTACLE, *SOURCE, *RECEIVER,
        *TRANSPORT, *DELIVERY, *GROUP,
    )
}  # fmt: skip


def step_metrics(name: str) -> tuple[MetricText, MetricText, MetricText]:
    """Return the metrics of steps that a program makes without a group, by the name of its work."""
    prefix = f"sphtp_{NOT_OF_NAMES.sub('_', name)}"
    return (
        MetricText(f"{prefix}_steps_total", ("node",), "Steps done."),
        MetricText(
            f"{prefix}_step_seconds", ("node",),
            "Time from the end of an exchange with the neighbours to the end of the next.",
        ),
        MetricText(
            f"{prefix}_wait_seconds", ("node", "peer"),
            "Time of an exchange, by the neighbour whose message came last; without exchanges for "
            "which all messages had come before.",
        ),
    )  # fmt: skip


Steps = Mapping[str, "StepStatistics[Any]"]
"""Statistics of steps that a program makes without a group, by a name for its work."""


NO_STEPS: Final[Steps] = {}


def check_steps(steps: Steps) -> None:
    """Raise ``SettingsError`` if a name in ``steps`` gives a metric the name of another one."""
    taken = dict.fromkeys(METRICS, "this library")
    for name in steps:
        for metric in step_metrics(name):
            if metric.name in taken:
                raise SettingsError(
                    f"steps {name!r} would have a metric {metric.name}, which {taken[metric.name]} "
                    "has: give them another name"
                )
            taken[metric.name] = f"the work {name!r}"


def metric_texts(steps: Steps) -> Mapping[str, MetricText]:
    """Return all metrics by name, including those of these steps."""
    return {**METRICS, **{one.name: one for name in steps for one in step_metrics(name)}}


class _Samples:
    """The values of one scrape, by the name of the metric and its labels."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[tuple[str, ...], float | TimeHistogram]] = defaultdict(dict)

    def add(self, name: str, labels: tuple[str, ...], value: float | TimeHistogram | None) -> None:
        """Add a value; ignore None, which is not known yet."""
        if value is not None:
            self.by_name[name][labels] = value

    def add_fields(
        self, table: Sequence[MetricText], labels: tuple[str, ...], statistics: object
    ) -> None:
        """Add the values of a table."""
        for metric in table:
            fields = metric.fields
            if isinstance(fields, str):
                self.add(metric.name, labels, getattr(statistics, fields))
            else:
                for word, field in fields.items():
                    self.add(metric.name, (*labels, word), getattr(statistics, field))


def read_samples(
    watched: Iterable[Server | Client | Node], steps: Steps = NO_STEPS
) -> dict[str, Values]:
    """Return the present values of servers, clients and nodes, by the name of the metric.

    The steps are those of the first client.
    """
    samples, taken = _Samples(), set[str]()
    samples.add("sphtp_build_info", (version("sphtp"),), 1)
    for one in watched:
        # Two objects with the same name get separate series.
        label = label_of(one)
        if label in taken:
            label = f"{label} at {_place(one)}"
        taken.add(label)
        match one:
            case Server():
                _read_server(samples, label, one)
            case Client():
                _read_client(samples, label, one)
                for name, statistics in steps.items():
                    _read_steps(samples, label, name, statistics)
                steps = NO_STEPS
            case Node():
                _read_node(samples, label, one)
    return dict(samples.by_name)


def metric_rows(
    watched: Iterable[Server | Client | Node], steps: Steps = NO_STEPS
) -> list[list[Any]]:
    """Return a row for each present value: the name of the metric, its labels by name, the value.

    A histogram is two rows, ``_count`` and ``_sum``. The steps are those of the first client.
    """
    rows: list[list[Any]] = []
    texts = metric_texts(steps)
    for name, values in read_samples(watched, steps).items():
        for labels, value in values.items():
            named = dict(zip(texts[name].labels, labels, strict=True))
            if isinstance(value, TimeHistogram):
                rows += ([f"{name}_count", named, sum(value.counts)],)
                rows += ([f"{name}_sum", named, value.total],)
            else:
                rows.append([name, named, float(value)])
    return rows


def server_rows(document: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows that the status of a server contains.

    Raises ``WireError`` if the status is malformed.
    """
    try:
        label, state = {"server": f"{document['id']:#010x}"}, document["state"]
        rows: list[list[Any]] = [
            ["sphtp_server_state", {**label, "state": one.value}, float(one.value == state)]
            for one in ServerState
        ]
        rows.append(["sphtp_server_clients", label, float(len(document["clients"]))])
        rows.append(["sphtp_server_members", label, float(len(document["view"]["members"]))])
        for reason, count in document["counters"].items():
            labels = {**label, "reason": printable(reason)}
            # Python's JSON reader also accepts NaN and infinity.
            if not isfinite(count):
                raise ValueError("a count that is no number")
            rows.append(["sphtp_server_refused_total", labels, float(count)])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WireError(f"the status of a server is malformed: {error!r}") from error
    return rows


def label_of(one: Server | Client | Node) -> str:
    """Return the label of a server, client or node: its id, its name, or its address."""
    match one:
        case Server():
            return f"{one.id:#010x}"
        case Client():
            return one.name or f"{one.id:#010x}"
        case Node():
            return _place(one)


def _place(one: Server | Client | Node) -> str:
    if isinstance(one, Server):
        return one.address.pub
    host, port = one.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _add_state(samples: _Samples, name: str, label: str, state: ServerState | ClientState) -> None:
    for one in type(state):
        samples.add(name, (label, one.value), one is state)


def _add_clock(samples: _Samples, label: str, clock: Clock) -> None:
    if clock.is_synchronized:
        samples.add("sphtp_clock_error_seconds", (label,), clock.error)


def _read_server(samples: _Samples, label: str, server: Server) -> None:
    statistics = server.statistics()
    samples.add_fields(SERVER, (label,), statistics)
    _add_state(samples, "sphtp_server_state", label, server.state)
    samples.add("sphtp_server_clients", (label,), len(server.clients))
    samples.add("sphtp_server_members", (label,), len(server.view.members))
    for reason, count in statistics.counters.items():
        samples.add("sphtp_server_refused_total", (label, reason), count)
    _add_clock(samples, label, server.clock)


def _read_client(samples: _Samples, label: str, client: Client) -> None:
    statistics = client.statistics()
    _add_state(samples, "sphtp_client_state", label, client.state)
    samples.add("sphtp_client_peers", (label,), len(client.peers))
    samples.add("sphtp_client_servers", (label,), len(client.servers))
    for reason, count in statistics.counters.items():
        samples.add("sphtp_client_refused_total", (label, reason), count)
    samples.add("sphtp_client_events_dropped_total", (label,), statistics.events_dropped)
    samples.add_fields(REQUESTS, (label,), statistics.requests)
    _add_clock(samples, label, client.clock)
    _read_node(samples, label, client.node)
    for admission in client.admissions.values():
        if admission.group is not None:
            _read_group(samples, label, admission.group)


def _read_steps(
    samples: _Samples, label: str, name: str, statistics: "StepStatistics[Any]"
) -> None:
    done, times, waits = (metric.name for metric in step_metrics(name))
    samples.add(done, (label,), float(sum(statistics.exchanges.counts)))
    samples.add(times, (label,), statistics.steps)
    for member, waited in statistics.waits.items():
        samples.add(waits, (label, str(member)), waited)


def _read_node(samples: _Samples, label: str, node: Node) -> None:
    samples.add_fields(NODE, (label,), node.statistics())
    for connection in node.connections:
        _read_channel(samples, label, node, connection)
    dispatcher = node.streams.dispatcher
    for source in dispatcher.sources:
        _read_source(samples, label, node, source)
    for subscription in dispatcher.subscriptions:
        _read_subscription(samples, label, node, subscription)


def _read_channel(samples: _Samples, label: str, node: Node, connection: "Connection") -> None:
    labels = (
        label,
        _peer(node, connection.peer_id, connection.address),
        node.services.name_of(connection),
        f"{connection.connection_id:#010x}",
    )
    port = connection.port
    samples.add_fields(CHANNEL, labels, port.statistics())
    if port.send_side is not None:
        for lane, (number, size) in enumerate(port.send_side.send_queue.levels()):
            samples.add("sphtp_lane_messages_waiting", (*labels, str(lane)), number)
            samples.add("sphtp_lane_waiting_bytes", (*labels, str(lane)), size)
        recovery = port.send_side.recovery
        samples.add("sphtp_channel_in_flight_bytes", labels, recovery.bytes_in_flight)
        samples.add("sphtp_channel_probes_unanswered", labels, recovery.probes)
        if (obstacle := find_obstacle(port.send_side)) is not None:
            samples.add("sphtp_channel_blocked", (*labels, obstacle.name.lower()), 1)


def _peer(node: Node, peer_id: int, address: tuple[str, int] | None) -> str:
    """Return the name of a peer; without one its id, and without that its address."""
    peer = node.roster.peers.get(peer_id)
    if peer is not None and peer.name:
        return peer.name
    if peer_id or address is None:
        return f"{peer_id:#010x}"
    return "{}:{}".format(*address)


def _read_source(samples: _Samples, label: str, node: Node, source: "HostedSource") -> None:
    topics = ",".join(source.topics)
    samples.add_fields(SOURCE, (label, topics), source.source.statistics())
    for number, receiver in source.numbered_receivers(trio.current_time()):
        peer = _peer(node, receiver.peer_id, receiver.address)
        labels = (label, topics, peer, f"{number:#010x}")
        samples.add("sphtp_source_receiver_behind_datagrams", labels, receiver.behind)
        samples.add("sphtp_source_receiver_room_bytes", labels, receiver.room)


def _read_subscription(
    samples: _Samples, label: str, node: Node, subscription: "HostedSubscription"
) -> None:
    channel = subscription.channel
    peer = _peer(node, channel.peer_id, channel.peer_address)
    labels = (label, peer, subscription.topic, f"{subscription.welcome.receiver:#010x}")
    statistics = subscription.subscription.statistics()
    samples.add_fields(TRANSPORT, labels, statistics.transport)
    samples.add_fields(DELIVERY, labels, statistics.delivery)


def _read_group(samples: _Samples, label: str, group: "LockstepGroup") -> None:
    labels = (label, group.name)
    samples.add("sphtp_group_members", labels, len(group.members))
    samples.add("sphtp_group_steps_total", labels, group.step)
    samples.add("sphtp_group_malformed_total", labels, group.malformed)
    statistics = group.statistics
    samples.add("sphtp_group_step_seconds", labels, statistics.steps)
    samples.add("sphtp_group_exchange_seconds", labels, statistics.exchanges)
    members = group.members
    missing = group.missing
    samples.add("sphtp_group_exchanging", labels, missing is not None)
    names = Counter(member.name for member in members)
    for member in members:
        is_unique = member.name and names[member.name] == 1
        text = member.name if is_unique else peer_label(member.name, member.id)
        if (waits := statistics.waits.get(member)) is not None:
            samples.add("sphtp_group_wait_seconds", (*labels, text), waits)
        if member in (missing or ()):
            samples.add("sphtp_group_missing", (*labels, text), 1)


def find_unready(watched: Iterable[object]) -> list[str]:
    """Return a line for each server that is not active, and each client that is not established."""
    lines = []
    for one in watched:
        match one:
            case Server() if one.state is not ServerState.ACTIVE:
                lines.append(f"server {label_of(one)} is {one.state.value}")
            case Client() if one.state is not ClientState.ESTABLISHED:
                lines.append(f"client {label_of(one)} is {one.state.value}")
            case _:
                pass
    return lines
