"""What peers and pages report of themselves, as the pages and the tables for people show it."""

import json
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sphtp.core.control.records import Peer
from sphtp.core.packing import PLAIN
from sphtp.shell.cluster_status import PeerAnswers, cluster_status
from sphtp.shell.encoding import encoding_for
from sphtp.shell.status import read_client_status_untrusted, read_metrics_untrusted
from sphtp.shell.web import RECORD, encode_places_untrusted
from sphtp_client.top.model import Observation, PlaceReport, read_samples_untrusted
from sphtp_client.top.places import read_answer_untrusted
from sphtp_client.top.printing import document, lines

PEER: Final = Peer(id=7, packed=b"", addresses=(("127.0.0.1", 5000),), nonce=0, name="ada")
OK: Final = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"
SECONDS: Final = 2.0


def page(data: bytes) -> None:
    """The answer of a page of metrics, as ``sphtp top`` shows it when it comes a second time."""
    samples = read_answer_untrusted(data)
    half = samples[: len(samples) // 2] + [
        one._replace(value=one.value / 2) for one in samples[len(samples) // 2 :]
    ]
    before = read_samples_untrusted("here:1", 0.0, half)
    show_places(before, read_samples_untrusted("here:1", SECONDS, samples))


def show_places(before: PlaceReport, now: PlaceReport) -> None:
    """Show two reports of a place as ``sphtp top`` does, in lines and as JSON."""
    other = replace(now, place="there:1")
    observed = [Observation(before).followed_by(now), Observation(other)]
    json.dumps(document(observed), allow_nan=False)
    assert all(line.isprintable() for line in lines(observed))


def client_status(data: bytes) -> None:
    """The status of a client, as the page shows it, from its second answer on."""
    for value in encoding_for(None).decode_many_untrusted([data]):
        status = read_client_status_untrusted(value)
        # What it cuts it cuts once; what it makes visible grows before it is cut.
        again: Any = read_client_status_untrusted(read_client_status_untrusted(status))
        assert read_client_status_untrusted(again) == again
        earlier: Any = {**status, "time": status["time"] - SECONDS, "channels": []}
        for before in (None, status, earlier):
            found = cluster_status([], [PEER], {PEER.id: PeerAnswers(status, before)})
            json.dumps(found, allow_nan=False)


def metrics(data: bytes) -> None:
    """The metrics of a client, as the page gets them."""
    for value in encoding_for(None).decode_many_untrusted([data]):
        rows = read_metrics_untrusted(value)
        json.dumps(rows, allow_nan=False)
        again = read_metrics_untrusted(read_metrics_untrusted(rows))
        assert read_metrics_untrusted(again) == again


def places(data: bytes) -> None:
    """The places of a simulation, as the page gets them."""
    for message in encoding_for(None).decode_many_untrusted([data]):
        record = encode_places_untrusted(PEER.id, message)
        size, peer_id, step, count = RECORD.unpack_from(record)
        assert (size, peer_id, step) == (len(record) - 4, PEER.id, message["step"])
        ids, x = record[RECORD.size :][: 4 * count], record[RECORD.size + 4 * count :]
        assert ids == message["id"]
        assert np.isfinite(np.frombuffer(x, "<f4")).all()
        assert len(x) == 12 * count


REPORTS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "top-page": page,
    "client-status": client_status,
    "client-metrics": metrics,
    "web-places": places,
}


# Where mutation starts

PAGES: Final = (
    (
        b'sphtp_node_datagrams_sent_total{node="ada"} 7.0\nsphtp_client_peers{node="ada"} 2 17\n'
        b'sphtp_client_state{node="ada",state="established"} 1.0\n'
    ),
    (
        b'sphtp_channel_messages_waiting{node="ada",peer="\\"b",service="m",channel="0x1"} 4.0\n'
        b'sphtp_channel_sent_bytes_total{node="ada",peer="\\"b",service="m",channel="0x1"} 4e3\n'
        b'sphtp_channel_blocked{node="ada",peer="\\"b",service="m",channel="0x1",by="window"} 1\n'
        b'sphtp_lane_messages_waiting{node="ada",peer="b",service="m",channel="0x1",lane="0"} 4.0\n'
    ),
    (
        b'sphtp_source_waiting_bytes{node="ada",topics="x"} 1\n'
        b'sphtp_source_receiver_room_bytes{node="ada",topics="x",peer="b",receiver="0x1"} 9\n'
        b'sphtp_subscription_datagrams_missing{node="b",peer="ada",topic="x",receiver="0x1"} 5\n'
    ),
    (
        b'sphtp_group_missing{node="ada",group="fluid",member="b"} 1\n'
        b'sphtp_group_exchanging{node="ada",group="fluid"} 1\n'
        b'sphtp_group_wait_seconds_sum{node="ada",group="fluid",member="b"} 1.5\n'
        b'sphtp_simulation_steps_total{node="ada"} +Inf\nsphtp_server_clients{server="0x1"} NaN\n'
    ),
)

TIMES: Final = {"count": 3, "seconds": 0.5}
STATUS: Final[Mapping[str, Any]] = {
    "version": 1,
    "time": 5.0,
    "id": 7,
    "name": "ada",
    "state": "established",
    "servers": [2],
    "channels": [
        {
            **dict.fromkeys(("sent", "received", "lost", "resent", "waiting", "unread"), 5),
            **dict.fromkeys(("bytes_sent", "bytes_received"), 2**40),
            **dict.fromkeys(("messages_sent", "messages_received", "channel", "window"), 3),
            "peer": 9,
            "service": "messages",
            "rtt": 0.001,
            "loss": 0.5,
            "bandwidth": None,
        }
    ],
    "sources": [
        {
            "topics": ["density"],
            "messages_sent": 4,
            "repairs_sent": 1,
            "receivers": [{"peer": 9, "behind": 7}],
        }
    ],
    "subscriptions": [{"peer": 9, "topic": "x", "delivered": 2, "lost": 1, "missing": 3}],
    "steps": [
        {
            "name": "fluid",
            "step": 4,
            "members": 2,
            "steps": TIMES,
            "exchanges": TIMES,
            "waits": [{"name": "bob", **TIMES}],
        }
    ],
}


def _pages() -> Iterable[bytes]:
    yield from (OK + text for text in PAGES)
    yield b"HTTP/1.1 401 Unauthorized\r\n\r\n"


def _statuses() -> Iterable[bytes]:
    lists = ("channels", "sources", "subscriptions", "steps")
    for kept in ((), *((one,) for one in lists)):
        yield PLAIN.encode({**STATUS, **{name: [] for name in lists if name not in kept}}, None)


def _metrics() -> Iterable[bytes]:
    yield PLAIN.encode([["sphtp_node_datagrams_sent_total", {"node": "ada"}, 7]], None)
    yield PLAIN.encode([["a", {}, 0.5], ["b", {"x": "\n", "y": ""}, -1]], None)


def _places() -> Iterable[bytes]:
    ids, x = array("I", (1, 5)).tobytes(), array("d", (0.5, 1.0, 2.0, -1e30, 0.0, 3.0)).tobytes()
    yield PLAIN.encode({"step": 7, "id": ids, "x": x}, None)
    yield PLAIN.encode({"step": 2**63 - 1, "id": b"", "x": b""}, None)
    yield PLAIN.encode({"step": 7, "id": ids, "x": array("d", [1e300] * 6).tobytes()}, None)


REPORT_STARTS: Final[Mapping[str, Callable[[], Iterable[bytes]]]] = {
    "top-page": _pages,
    "client-status": _statuses,
    "client-metrics": _metrics,
    "web-places": _places,
}
