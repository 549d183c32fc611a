"""An instrument that writes a log of its events in qlog, so that tools for QUIC can draw it.

qlog is the QUIC working group's format for such logs. This module writes its version 0.3
(draft-ietf-quic-qlog-main-schema-05, draft-ietf-quic-qlog-quic-events-04), the newest one that qvis
reads, as JSON text sequences (RFC 7464): a line for each event. So a log that was cut off is valid
up to its last whole line.

The log represents a channel as a QUIC connection. Its packets are 1-RTT packets. A lane is a
bidirectional stream, whose bytes are the lane's reliable messages one behind the other. An
unreliable message is a datagram (RFC 9221), credit is MAX_DATA, and the ack in each header is an
ACK frame. Events without a counterpart in QUIC have names in the namespace ``sphtp:``, and some
standard events have additional fields. Times are in milliseconds, sizes in bytes, rates in bits per
second.
"""

import logging
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping
from json import JSONEncoder
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

from sphtp.core.channel.frames import DATA
from sphtp.core.channel.handshake import Refusal
from sphtp.core.channel.instrument import (
    CongestionInfo,
    Drop,
    FrameInfo,
    Instrument,
    LostBy,
    Obstacle,
    PacketInfo,
    RoundTripInfo,
    SettledInfo,
    WatchedChannel,
)
from sphtp.core.channel.lifecycle import Closed, CloseReason
from sphtp.core.channel.settings import Delivery
from sphtp.core.datagrams import Address
from sphtp.core.serial import HALF, unwrap
from sphtp.errors import SettingsError

VERSION: Final = "0.3"
FORMAT: Final = "JSON-SEQ"
SEPARATOR: Final = "\x1e"
"""The character in front of each record of a JSON text sequence (RFC 7464)."""

NODE: Final = "node"
"""The group of events that belong to no channel: tools split a log only if all events have a group.
"""

ANYWHERE: Final = ("::", 0)
"""The address that stands for an unknown one."""

STREAMS: Final = 4
"""The difference between the ids of two lanes: the lowest two bits are the type of a QUIC stream.
"""

QUARTER: Final = HALF // 2

BUFFER: Final = 1 << 16
"""The bytes that are buffered before they are written."""

DROP_TRIGGERS: Final[Mapping[Drop, str]] = {
    Drop.MALFORMED: "invalid",
    Drop.UNKNOWN: "connection_unknown",
    Drop.FORGED_ACK: "invalid",
}
"""The triggers of drops; the trigger of all others is ``rejected``."""

LOSS_TRIGGERS: Final[Mapping[LostBy, str]] = {
    LostBy.PACKETS: "reordering_threshold",
    LostBy.TIME: "time_threshold",
}

CLOSE_TRIGGERS: Final[Mapping[CloseReason, str]] = {
    CloseReason.DONE: "clean",
    CloseReason.UNREACHABLE: "handshake_timeout",
    CloseReason.VANISHED: "idle_timeout",
    CloseReason.SCHEMA: "version_mismatch",
}
"""The triggers of closing; the trigger of all others is ``error``."""

VantagePoint = Literal["client", "server", "unknown"]

log: Final = logging.getLogger("sphtp.qlog")


class QlogWriter(Instrument):
    """An instrument that writes the events of a node to a file, as qlog.

    Use it in a ``with`` block around the node, and in ``Config.instruments``. Writing is buffered.
    If it fails, for example because the disk is full, the node goes on. The error is logged under
    ``sphtp.qlog`` and kept in ``error``, and no further events are written.

    Args:
        path: the file, which is replaced if it exists.
        title: the title of the log, in its first line.
        vantage_point: the role of the node. A node may both dial and accept, so the default is
            ``"unknown"``. A tool that draws the logs of both ends of a channel side by side needs
            ``"client"`` in one and ``"server"`` in the other.
        clock: a function that returns seconds since 1970, for the date in the first line.

    Raises:
        OSError: the file cannot be opened.
        SettingsError: there is no such vantage point.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        title: str = "SphTP",
        vantage_point: VantagePoint = "unknown",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if vantage_point not in get_args(VantagePoint):
            allowed = ", ".join(get_args(VantagePoint))
            raise SettingsError(f"vantage_point is {vantage_point!r}; allowed is {allowed}")
        self._file = QlogFile(path, title, vantage_point, clock)
        self._here: Address = ANYWHERE
        self._channels: dict[WatchedChannel, _ChannelTrace] = {}

    @property
    def error(self) -> OSError | None:
        """The error that ended the writing early, if one did."""
        return self._file.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the buffer, and close the file. Later events are not written."""
        self._file.close()

    # The node

    def node_opened(self, now: float, address: Address) -> None:
        """Write ``connectivity:server_listening``, with the address of the node."""
        self._here = address
        host, port = address
        version = _ip_version(host)
        place = {f"ip_{version}": host, f"port_{version}": port}
        self._write(now, None, "connectivity:server_listening", place)

    def node_closed(self, now: float) -> None:
        """Write ``sphtp:node_closed``."""
        self._write(now, None, "sphtp:node_closed", {})

    def datagram_dropped(
        self, now: float, channel: WatchedChannel | None, address: Address, size: int, why: Drop
    ) -> None:
        """Write ``transport:packet_dropped``, with the address of the sender and the reason."""
        data = {
            "raw": {"length": size},
            "details": {"remote": _place(address), "reason": why.name.lower()},
            "trigger": DROP_TRIGGERS.get(why, "rejected"),
        }
        self._write(now, channel, "transport:packet_dropped", data)

    def channel_refused(self, now: float, address: Address, why: Refusal) -> None:
        """Write ``sphtp:connection_refused``, with the address of the peer and the reason."""
        data = {"remote": _place(address), "trigger": why.name.lower()}
        self._write(now, None, "sphtp:connection_refused", data)

    # Channels

    def channel_opening(self, now: float, channel: WatchedChannel) -> None:
        """Write ``connectivity:connection_state_updated``, with the state ``attempted``."""
        self._channels[channel] = _ChannelTrace()
        data = {"new": "attempted", "dialled": channel.is_dialled}
        self._write(now, channel, "connectivity:connection_state_updated", data)

    def channel_opened(self, now: float, channel: WatchedChannel) -> None:
        """Write the new state, and ``connectivity:connection_started`` with both addresses."""
        states = {"old": "attempted", "new": "handshake_confirmed"}
        self._write(now, channel, "connectivity:connection_state_updated", states)
        here, there = self._here, channel.peer_address or ANYWHERE
        data = {
            "ip_version": _ip_version(there[0]),
            "src_ip": here[0],
            "src_port": here[1],
            "dst_ip": there[0],
            "dst_port": there[1],
            "protocol": "SphTP",
            "src_cid": f"{channel.id:08x}",
            "peer_id": channel.peer_id,
        }
        self._write(now, channel, "connectivity:connection_started", data)

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        """Write ``connectivity:connection_closed``, with the side that caused it and the reason."""
        self._channels.pop(channel, None)
        data = {
            "owner": "remote" if closed.by_peer else "local",
            "application_code": int(closed.reason),
            "close_reason": closed.reason.name.lower(),
            "reason": closed.text,
            "trigger": CLOSE_TRIGGERS.get(closed.reason, "error"),
        }
        self._write(now, channel, "connectivity:connection_closed", data)

    # Packets

    def packet_sent(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """Write ``transport:packet_sent``, with the frames and the acks of the packet."""
        data = _packet(packet, self._state(channel).sent)
        self._write(now, channel, "transport:packet_sent", data)

    def packet_received(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """Write ``transport:packet_received``, with the frames and the acks of the packet."""
        data = _packet(packet, self._state(channel).received)
        self._write(now, channel, "transport:packet_received", data)

    def packet_acked(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """Write ``transport:packets_acked``, with the number of the one packet."""
        self._write(now, channel, "transport:packets_acked", {"packet_numbers": [sequence]})

    def packet_lost(self, now: float, channel: WatchedChannel, sequence: int, by: LostBy) -> None:
        """Write ``recovery:packet_lost``, with the rule by which the packet counts as lost."""
        data = {"header": _header(sequence), "trigger": LOSS_TRIGGERS[by]}
        self._write(now, channel, "recovery:packet_lost", data)

    def loss_was_spurious(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """Write ``sphtp:spurious_loss``, with the number of the packet."""
        self._write(now, channel, "sphtp:spurious_loss", {"header": _header(sequence)})

    def probe_sent(self, now: float, channel: WatchedChannel, unanswered: int) -> None:
        """Write ``recovery:loss_timer_updated``, and the number of unanswered probes."""
        data = {"timer_type": "pto", "event_type": "expired"}
        self._write(now, channel, "recovery:loss_timer_updated", data)
        self._write(now, channel, "recovery:metrics_updated", {"pto_count": unanswered})

    # Estimates

    def round_trip_changed(self, now: float, channel: WatchedChannel, trip: RoundTripInfo) -> None:
        """Write the round trip as ``recovery:metrics_updated``."""
        data = {
            "latest_rtt": to_milliseconds(trip.latest),
            "smoothed_rtt": to_milliseconds(trip.smoothed),
            "rtt_variance": to_milliseconds(trip.deviation),
            "min_rtt": to_milliseconds(trip.minimum),
        }
        self._write(now, channel, "recovery:metrics_updated", data)

    def congestion_changed(
        self, now: float, channel: WatchedChannel, congestion: CongestionInfo
    ) -> None:
        """Write ``recovery:metrics_updated``, and the state of the controller if it has changed."""
        data: dict[str, Any] = {
            "congestion_window": congestion.window,
            "bytes_in_flight": congestion.in_flight,
        }
        if congestion.rate is not None:
            data["pacing_rate"] = round(8 * congestion.rate)
        self._write(now, channel, "recovery:metrics_updated", data)
        known = self._state(channel)
        if known.congestion != congestion.state:
            states = {} if known.congestion is None else {"old": known.congestion}
            known.congestion = states["new"] = congestion.state
            self._write(now, channel, "recovery:congestion_state_updated", states)

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Write ``connectivity:mtu_updated``, with the largest size of a packet."""
        self._write(now, channel, "connectivity:mtu_updated", {"new": size})

    # Messages. Credit is logged with the frames that carry it.

    def messages_queued(
        self,
        now: float,
        channel: WatchedChannel,
        lane: int,
        delivery: Delivery,
        messages: int,
        size: int,
    ) -> None:
        """Write ``transport:data_moved``, from the application to the transport."""
        data = {
            "stream_id": STREAMS * lane,
            "length": size,
            "from": "application",
            "to": "transport",
            "delivery": delivery.name.lower(),
            "messages": messages,
        }
        self._write(now, channel, "transport:data_moved", data)

    def message_settled(self, now: float, channel: WatchedChannel, message: SettledInfo) -> None:
        """Write ``sphtp:message_settled``, with the outcome and the latency."""
        data = {
            "lane": message.lane,
            "length": message.size,
            "outcome": message.outcome.name.lower(),
            "latency": to_milliseconds(message.latency),
        }
        self._write(now, channel, "sphtp:message_settled", data)

    def send_blocked(
        self, now: float, channel: WatchedChannel, why: Obstacle, lanes: tuple[int, ...]
    ) -> None:
        """Write ``sphtp:send_blocked``, with the obstacle and the lanes that wait."""
        data = {"trigger": why.name.lower(), "lanes": lanes}
        self._write(now, channel, "sphtp:send_blocked", data)

    def send_unblocked(self, now: float, channel: WatchedChannel) -> None:
        """Write ``sphtp:send_unblocked``."""
        self._write(now, channel, "sphtp:send_unblocked", {})

    def _state(self, channel: WatchedChannel) -> "_ChannelTrace":
        # Packets that arrive after the end of their channel must not add it to the table again.
        return self._channels.get(channel) or _ChannelTrace()

    def _write(
        self, now: float, channel: WatchedChannel | None, name: str, data: Mapping[str, Any]
    ) -> None:
        group = NODE if channel is None else f"{channel.id:08x}"
        self._file.write(now, group, name, data)


class _Offsets:
    """The offsets of a lane's messages in a stream of bytes that contains them one after the other.

    qlog gives a frame's offset in its stream, by which tools recognise retransmissions. Frames
    identify messages by ids, so this object stores the offset of each message by its id. The
    sending side knows all offsets. On the receiving side some messages arrive late. Each of these
    is assumed to be as long as the first later message that arrives, so that offsets behind a loss
    are estimates.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        # The starts of message ``_first`` and of those behind it; the last entry is the start of
        # the next message.
        self._starts = array("Q", [0])

    def place(self, message_id: int, size: int, count: int = 1) -> int:
        """Return the offset of the first of ``count`` messages of ``size`` bytes together."""
        if self._first is None:
            self._first = message_id
        starts = self._starts
        index = max(unwrap(message_id, self._first + len(starts) - 1) - self._first, 0)
        while len(starts) <= index:
            starts.append(starts[-1] + size // count)
        start = starts[index]
        for number in range(len(starts) - index, count + 1):
            starts.append(start + size * number // count)
        # Older messages are never sent again: the ids in use of a lane span a quarter of all ids.
        if len(starts) > HALF:
            del starts[:QUARTER]
            self._first += QUARTER
        return start


class _ChannelTrace:
    """The state of a channel from one event to the next."""

    __slots__ = ("congestion", "received", "sent")

    def __init__(self) -> None:
        # The last state of congestion control.
        self.congestion: str | None = None
        self.sent: defaultdict[int, _Offsets] = defaultdict(_Offsets)
        self.received: defaultdict[int, _Offsets] = defaultdict(_Offsets)


class QlogFile:
    """A file of records. The first record describes the log; each of the others is an event.

    Records are buffered. An error ends the writing, is logged, and is kept in ``error``.

    ``clock`` gives seconds since 1970. Raises ``OSError`` when the file cannot be opened.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        title: str,
        vantage_point: VantagePoint,
        clock: Callable[[], float],
    ) -> None:
        self.error: OSError | None = None
        self._title = title
        self._vantage_point = vantage_point
        self._clock = clock
        self._start: float | None = None
        self._time = 0.0
        self._file = open(path, "w", BUFFER, encoding="utf-8", newline="\n")  # noqa: SIM115
        self._encode = JSONEncoder(separators=(",", ":")).encode

    def write(self, now: float, group: str, name: str, data: Mapping[str, Any]) -> None:
        """Write an event; ``now`` is in seconds, and the log counts from the first event.

        The times of a log never go back, because tools would sort the events, and warn. An event
        with an earlier time gets the time of the event before it.
        """
        if self._file.closed:
            return
        if self._start is None:
            self._begin(now)
        self._time = max(self._time, to_milliseconds(now - (self._start or 0.0)))
        self._write_record({"time": self._time, "name": name, "group_id": group, "data": data})

    def close(self) -> None:
        """Write the buffer, and close. Closing twice is fine."""
        if self._start is None and not self._file.closed:
            self._begin(0.0)
        try:
            self._file.close()
        except OSError as error:
            # The file is closed nevertheless, without the buffered records.
            self._fail(error)

    def _begin(self, now: float) -> None:
        self._start = now
        fields = {
            "protocol_type": ["SphTP"],
            "time_format": "relative",
            "reference_time": to_milliseconds(self._clock()),
        }
        self._write_record(
            {
                "qlog_version": VERSION,
                "qlog_format": FORMAT,
                "title": self._title,
                "trace": {
                    "title": self._title,
                    "vantage_point": {"name": self._title, "type": self._vantage_point},
                    "common_fields": fields,
                },
            }
        )

    def _write_record(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(f"{SEPARATOR}{self._encode(record)}\n")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self.error is not None:
            return
        self.error = error
        log.error("%s: %s; no more is written", self._file.name, error.strerror)
        self.close()


def _header(sequence: int) -> dict[str, Any]:
    return {"packet_type": "1RTT", "packet_number": sequence}


def _packet(packet: PacketInfo, lanes: Mapping[int, _Offsets]) -> dict[str, Any]:
    frames = [_frame(frame, packet, lanes) for frame in packet.frames]
    if packet.acked:
        ranges = [[first] if first == last else [first, last] for first, last in packet.acked]
        frames.insert(0, {"frame_type": "ack", "acked_ranges": ranges})
    header = _header(packet.sequence)
    return {"header": header, "raw": {"length": packet.size}, "frames": frames}


def _frame(frame: FrameInfo, packet: PacketInfo, lanes: Mapping[int, _Offsets]) -> dict[str, Any]:
    """Return a frame's type and fields by their names in QUIC. The frame SKIP has none there."""
    if frame.message_id is not None and frame.lane is not None:
        size = frame.total or frame.size
        start = lanes[frame.lane].place(frame.message_id, size, frame.messages or 1)
        return {
            "frame_type": "skip" if frame.kind == "skip" else "stream",
            "stream_id": STREAMS * frame.lane,
            "offset": start + frame.offset,
            "length": size if frame.kind == "skip" else frame.size,
            "message_id": frame.message_id,
            "messages": frame.messages,
        }
    if frame.lane is not None:
        what = {"lane": frame.lane, "messages": frame.messages}
        return {"frame_type": "datagram", "length": frame.size, **what}
    if frame.limits is not None:
        messages, size = frame.limits
        return {"frame_type": "max_data", "maximum": size, "messages": messages}
    if frame.kind == "padding":
        # Padding fills the rest of its packet, whatever its length field has.
        return {"frame_type": "padding", "payload_length": packet.size - DATA.size}
    if frame.kind == "close":
        return {"frame_type": "connection_close", "error_space": "application"}
    return {"frame_type": frame.kind}


def _place(address: Address) -> dict[str, Any]:
    return {"ip": address[0], "port": address[1]}


def _ip_version(host: str) -> str:
    return "v6" if ":" in host else "v4"


def to_milliseconds(seconds: float) -> float:
    """Return a time in qlog's unit, milliseconds, to the microsecond."""
    return round(seconds * 1e3, 3)
