"""What qlog 0.3 asks of a log, from the text of its drafts, and what qvis asks beyond that.

The drafts are draft-ietf-quic-qlog-main-schema-05 and draft-ietf-quic-qlog-quic-events-04; the
DATAGRAM frame is from version 05 of the latter. They allow fields of one's own beside theirs: those
that this project adds are listed here, so that a misspelt one is found.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Check = Callable[[Any], bool]


def uint(bits: int) -> Check:
    return lambda value: type(value) is int and 0 <= value < 1 << bits


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_float(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


def is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def is_hex(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and set(value) <= set("0123456789abcdef")


def one_of(*words: str) -> Check:
    return lambda value: value in words


def array(of: Check, least: int = 0, most: int = 1 << 30) -> Check:
    return lambda value: (
        isinstance(value, list) and least <= len(value) <= most and all(map(of, value))
    )


def fields(must: Mapping[str, Check], may: Mapping[str, Check] | None = None) -> Check:
    """An object that has the first fields, may have the others, and has none beside them."""
    known = {**must, **(may or {})}

    def check(value: Any) -> bool:
        assert isinstance(value, dict)
        assert set(must) <= set(value), f"{set(must) - set(value)} missing in {value}"
        assert set(value) <= set(known), f"{set(value) - set(known)} unknown in {value}"
        for name, part in value.items():
            assert known[name](part), f"{name} = {part!r} in {value}"
        return True

    return check


UINT16, UINT32, UINT64 = uint(16), uint(32), uint(64)

HEADER = fields({"packet_type": one_of("1RTT"), "packet_number": UINT64})
RAW = fields({}, {"length": UINT64, "payload_length": UINT64})
OUR_MESSAGES = {"message_id": UINT16, "messages": UINT32}

FRAMES: Mapping[str, Check] = {
    "ack": fields(
        {"frame_type": is_text},
        {"acked_ranges": array(array(UINT64, 1, 2), 1), "ack_delay": is_float},
    ),
    "connection_close": fields(
        {"frame_type": is_text},
        {"error_space": one_of("transport", "application"), "reason": is_text},
    ),
    "datagram": fields(
        {"frame_type": is_text}, {"length": UINT64, "lane": UINT32, "messages": UINT32}
    ),
    "max_data": fields({"frame_type": is_text, "maximum": UINT64}, {"messages": UINT32}),
    "padding": fields({"frame_type": is_text, "payload_length": UINT32}, {"length": UINT32}),
    "ping": fields({"frame_type": is_text}),
    # Ours: the standard allows frames that it does not know.
    "skip": fields(
        {"frame_type": is_text, "stream_id": UINT64, "offset": UINT64, "length": UINT64},
        OUR_MESSAGES,
    ),
    "stream": fields(
        {"frame_type": is_text, "stream_id": UINT64, "offset": UINT64, "length": UINT64},
        {"fin": is_bool, **OUR_MESSAGES},
    ),
}


def is_frame(value: Any) -> bool:
    return FRAMES[value["frame_type"]](value)


PACKET = fields({"header": HEADER}, {"frames": array(is_frame), "raw": RAW})
PLACE = fields({"ip": is_text, "port": UINT16})
CONNECTION_STATES = ("attempted", "handshake_started", "handshake_confirmed", "closed")

STANDARD: Mapping[str, Check] = {
    "connectivity:server_listening": fields(
        {}, {"ip_v4": is_text, "ip_v6": is_text, "port_v4": UINT16, "port_v6": UINT16}
    ),
    "connectivity:connection_started": fields(
        {"src_ip": is_text, "dst_ip": is_text},
        {
            "ip_version": one_of("v4", "v6"),
            "protocol": is_text,
            "src_port": UINT16,
            "dst_port": UINT16,
            "src_cid": is_hex,
            "dst_cid": is_hex,
            "peer_id": UINT32,
        },
    ),
    "connectivity:connection_closed": fields(
        {},
        {
            "owner": one_of("local", "remote"),
            "application_code": UINT32,
            "reason": is_text,
            "trigger": one_of(
                "clean", "handshake_timeout", "idle_timeout", "error", "stateless_reset",
                "version_mismatch", "application",
            ),
            "close_reason": is_text,
        },
    ),
    "connectivity:connection_state_updated": fields(
        {"new": one_of(*CONNECTION_STATES)},
        {"old": one_of(*CONNECTION_STATES), "dialled": is_bool},
    ),
    "connectivity:mtu_updated": fields({"new": UINT16}, {"old": UINT16, "done": is_bool}),
    "transport:packet_sent": PACKET,
    "transport:packet_received": PACKET,
    "transport:packet_dropped": fields(
        {},
        {
            "raw": RAW,
            "details": fields({"remote": PLACE, "reason": is_text}),
            "trigger": one_of(
                "internal_error", "rejected", "unsupported", "invalid", "connection_unknown",
                "decryption_failure", "general",
            ),
        },
    ),
    "transport:packets_acked": fields({}, {"packet_numbers": array(UINT64, 1)}),
    "transport:data_moved": fields(
        {},
        {
            "stream_id": UINT64,
            "length": UINT64,
            "from": is_text,
            "to": is_text,
            "delivery": is_text,
            "messages": UINT32,
        },
    ),
    "recovery:metrics_updated": fields(
        {},
        {
            "min_rtt": is_float,
            "smoothed_rtt": is_float,
            "latest_rtt": is_float,
            "rtt_variance": is_float,
            "pto_count": UINT16,
            "congestion_window": UINT64,
            "bytes_in_flight": UINT64,
            "pacing_rate": UINT64,
        },
    ),
    "recovery:congestion_state_updated": fields({"new": is_text}, {"old": is_text}),
    "recovery:loss_timer_updated": fields(
        {"event_type": one_of("set", "expired", "cancelled")}, {"timer_type": one_of("ack", "pto")}
    ),
    "recovery:packet_lost": fields(
        {},
        {
            "header": HEADER,
            "trigger": one_of("reordering_threshold", "time_threshold", "pto_expired"),
        },
    ),
}  # fmt: skip

OURS: Mapping[str, Check] = {
    "sphtp:connection_refused": fields({"remote": PLACE, "trigger": is_text}),
    "sphtp:message_settled": fields(
        {"lane": UINT32, "length": UINT64, "outcome": is_text, "latency": is_float}
    ),
    "sphtp:node_closed": fields({}),
    "sphtp:send_blocked": fields({"trigger": is_text, "lanes": array(UINT32)}),
    "sphtp:send_unblocked": fields({}),
    "sphtp:spurious_loss": fields({"header": HEADER}),
}

FIRST = fields(
    {
        "qlog_version": one_of("0.3"),
        "qlog_format": one_of("JSON-SEQ"),
        "trace": fields(
            {},
            {
                "title": is_text,
                "vantage_point": fields(
                    {"type": one_of("client", "server", "unknown")}, {"name": is_text}
                ),
                "common_fields": fields(
                    {},
                    {
                        "protocol_type": array(is_text, 1),
                        "time_format": one_of("relative"),
                        "reference_time": is_float,
                    },
                ),
            },
        ),
    },
    {"title": is_text},
)
EVENT = fields({"time": is_float, "name": is_text, "data": lambda _: True, "group_id": is_text})


def read_qlog(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first record of a log and its events, having checked every one of them.

    It fails where the drafts are not followed, and where qvis would refuse a log, or repair it with
    a warning: its loader looks for the format in the first 1,024 characters (the drafts say 256),
    splits the events by group if the first of them has one, and sorts what is not in order.
    """
    records = path.read_text("utf-8").split("\x1e")
    assert records[0] == "", "a text sequence begins with a separator"
    assert all(record.endswith("\n") and record.count("\n") == 1 for record in records[1:])
    assert all(word in records[1][:256] for word in ("qlog_version", "qlog_format"))
    first, *events = map(json.loads, records[1:])
    assert FIRST(first)
    for event in events:
        assert EVENT(event)
        assert {**STANDARD, **OURS}[event["name"]](event["data"])
        if "raw" in event["data"] and "header" in event["data"]:
            assert event["data"]["raw"]["length"] > 0, "qvis leaves out packets without a size"
    times = [event["time"] for event in events]
    assert times[:1] in ([], [0])
    assert times == sorted(times)
    return first, events
