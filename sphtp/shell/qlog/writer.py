"""A log of everything that an instrument is told, in the words of qlog.

Events have the names of draft-ietf-quic-qlog-quic-events where it has one for them, in a namespace
of their own. Times are in milliseconds, sizes in bytes, rates in bits per second, as in qlog.
"""

import time
from collections.abc import Callable, Mapping
from enum import Enum
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self

from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.handshake import Refusal
from sphtp.core.channel.lifecycle import Closed
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.channel.watch.records import (
    CongestionInfo,
    Drop,
    FrameInfo,
    LostBy,
    Obstacle,
    PacketInfo,
    RoundTripInfo,
    SettledInfo,
    WatchedChannel,
)
from sphtp.core.datagrams import Address
from sphtp.shell.qlog.file import QlogFile, to_milliseconds

TRIGGERS: Final[Mapping[Enum, str]] = {
    Drop.UNKNOWN: "connection_unknown",
    LostBy.PACKETS: "reordering_threshold",
    LostBy.TIME: "time_threshold",
}


class QlogWriter(Instrument):
    """Writes what it is told to a file, as lines of JSON; in a ``with`` block around the node.

    Writing is buffered. When it fails, for the disk is full or gone, the node goes on: the error is
    logged under ``sphtp.qlog``, kept in ``error``, and no more is written.

    Args:
        path: the file, made anew.
        title: what the first line calls the log.
        clock: seconds since 1970, for the date in the first line.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        title: str = "SphTP",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = QlogFile(path, title, clock)
        # What congestion control was last up to.
        self._states: dict[WatchedChannel, str] = {}

    @property
    def error(self) -> OSError | None:
        """What has ended the writing before its time, if anything has."""
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
        """Write what waits, and close the file. What is told afterwards is not written."""
        self._file.close()

    # The node

    def node_opened(self, now: float, address: Address) -> None:
        """Begin the log with where the node listens."""
        self._write(now, None, "server_listening", _place(address))

    def node_closed(self, now: float) -> None:
        """Log it."""
        self._write(now, None, "server_closed", {})

    def datagram_dropped(
        self, now: float, channel: WatchedChannel | None, address: Address, size: int, why: Drop
    ) -> None:
        """Log it."""
        data = {"raw": {"length": size}, "remote": _place(address), "trigger": _trigger(why)}
        self._write(now, channel, "packet_dropped", data)

    def channel_refused(self, now: float, address: Address, why: Refusal) -> None:
        """Log it."""
        data = {"remote": _place(address), "trigger": why.name.lower()}
        self._write(now, None, "connection_refused", data)

    # Channels

    def channel_opening(self, now: float, channel: WatchedChannel) -> None:
        """Log it."""
        self._write(now, channel, "connection_started", {"dialled": channel.is_dialled})

    def channel_opened(self, now: float, channel: WatchedChannel) -> None:
        """Log it, with who the peer turned out to be."""
        data = {
            "new": "handshake_complete",
            "remote": channel.peer_address and _place(channel.peer_address),
            "peer_id": channel.peer_id,
        }
        self._write(now, channel, "connection_state_updated", data)

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        """Log it."""
        self._states.pop(channel, None)
        data = {
            "initiator": "remote" if closed.by_peer else "local",
            "reason": closed.text,
            "trigger": closed.reason.name.lower(),
        }
        self._write(now, channel, "connection_closed", data)

    # Packets

    def packet_sent(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """Log it."""
        self._write(now, channel, "packet_sent", _packet(packet))

    def packet_received(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """Log it."""
        self._write(now, channel, "packet_received", _packet(packet))

    def packet_acked(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """Log it."""
        self._write(now, channel, "packets_acked", {"packet_numbers": [sequence]})

    def packet_lost(self, now: float, channel: WatchedChannel, sequence: int, by: LostBy) -> None:
        """Log it."""
        data = {"header": {"packet_number": sequence}, "trigger": _trigger(by)}
        self._write(now, channel, "packet_lost", data)

    def loss_was_spurious(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """Log it."""
        self._write(now, channel, "spurious_loss", {"header": {"packet_number": sequence}})

    def probe_sent(self, now: float, channel: WatchedChannel, unanswered: int) -> None:
        """Log it."""
        data = {"event_type": "expired", "timer_type": "pto", "unanswered": unanswered}
        self._write(now, channel, "loss_timer_updated", data)

    # Estimates

    def round_trip_changed(self, now: float, channel: WatchedChannel, trip: RoundTripInfo) -> None:
        """Log it."""
        data = {
            "latest_rtt": to_milliseconds(trip.latest),
            "smoothed_rtt": to_milliseconds(trip.smoothed),
            "rtt_variance": to_milliseconds(trip.deviation),
            "min_rtt": to_milliseconds(trip.minimum),
        }
        self._write(now, channel, "recovery_metrics_updated", data)

    def congestion_changed(
        self, now: float, channel: WatchedChannel, congestion: CongestionInfo
    ) -> None:
        """Log the figures, and the state if it is another."""
        data: dict[str, Any] = {
            "congestion_window": congestion.window,
            "bytes_in_flight": congestion.in_flight,
        }
        if congestion.rate is not None:
            data["pacing_rate"] = round(8 * congestion.rate)
        self._write(now, channel, "recovery_metrics_updated", data)
        old = self._states.get(channel)
        if old != congestion.state:
            self._states[channel] = congestion.state
            states = {"old": old, "new": congestion.state}
            self._write(now, channel, "congestion_state_updated", states)

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Log it."""
        self._write(now, channel, "mtu_updated", {"new": size})

    # Messages

    def messages_queued(
        self,
        now: float,
        channel: WatchedChannel,
        lane: int,
        delivery: Delivery,
        messages: int,
        size: int,
    ) -> None:
        """Log it."""
        data = {"lane": lane, "delivery": delivery.name.lower(), "messages": messages}
        self._write(now, channel, "messages_queued", {**data, "length": size})

    def message_settled(self, now: float, channel: WatchedChannel, message: SettledInfo) -> None:
        """Log it."""
        data = {
            "lane": message.lane,
            "length": message.size,
            "outcome": message.outcome.name.lower(),
            "latency": to_milliseconds(message.latency),
        }
        self._write(now, channel, "message_settled", data)

    def credit_sent(self, now: float, channel: WatchedChannel, messages: int, size: int) -> None:
        """Log it."""
        self._write(now, channel, "credit_sent", {"messages": messages, "length": size})

    def credit_received(
        self, now: float, channel: WatchedChannel, messages: int, size: int
    ) -> None:
        """Log it."""
        self._write(now, channel, "credit_received", {"messages": messages, "length": size})

    def send_blocked(
        self, now: float, channel: WatchedChannel, why: Obstacle, lanes: tuple[int, ...]
    ) -> None:
        """Log it."""
        self._write(now, channel, "send_blocked", {"trigger": _trigger(why), "lanes": lanes})

    def send_unblocked(self, now: float, channel: WatchedChannel) -> None:
        """Log it."""
        self._write(now, channel, "send_unblocked", {})

    def _write(
        self, now: float, channel: WatchedChannel | None, name: str, data: Mapping[str, Any]
    ) -> None:
        group = None if channel is None else f"{channel.id:08x}"
        self._file.write(now, group, name, data)


def _packet(packet: PacketInfo) -> dict[str, Any]:
    return {
        "header": {"packet_number": packet.sequence},
        "raw": {"length": packet.size},
        "frames": [_frame(frame) for frame in packet.frames],
    }


def _frame(frame: FrameInfo) -> dict[str, Any]:
    if frame.lane is None:
        return {"frame_type": frame.kind}
    counts = {"messages": frame.messages, "length": frame.size}
    return {"frame_type": frame.kind, "lane": frame.lane, **counts}


def _place(address: Address) -> dict[str, Any]:
    return {"ip": address[0], "port": address[1]}


def _trigger(why: Drop | LostBy | Obstacle) -> str:
    return TRIGGERS.get(why) or why.name.lower()
