"""The log of a node: lines of JSON that add up to what happened."""

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import sphtp
from sphtp.testing import Faults, Pair
from sphtp.watch import QlogWriter
from tests.core.channel.talk import follow
from tests.deadline import within_20_seconds
from tests.recorder import EVENTS, Recorder

QUICK = sphtp.ChannelSettings(linger=0.05)
WHEN = 1_800_000_000.25


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first line and the events; every line has to be JSON by itself."""
    first, *events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return first, events


def check(events: list[dict[str, Any]]) -> None:
    """What holds for every event, and for their times together."""
    times = [event["time"] for event in events]
    assert times[0] == 0
    assert times == sorted(times)
    for event in events:
        assert set(event) - {"group_id"} == {"time", "name", "data"}
        assert event["name"].startswith("sphtp:")


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["name"] == f"sphtp:{name}"]


@within_20_seconds
async def test_what_real_nodes_do_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "here.qlog"
    recorder = Recorder()
    with QlogWriter(path, title="left", clock=lambda: WHEN) as qlog:
        async with (
            sphtp.open_node(settings=QUICK, impairment=sphtp.Impairment(loss=0.1), seed=1) as there,
            sphtp.open_node(settings=QUICK, instruments=[qlog, recorder]) as here,
            here.open_channel(*there.address) as channel,
        ):
            other = await there.accept()
            for number in range(100):
                await channel.send([number, bytes(1000)])
            assert [(await other.receive())[0] for _ in range(100)] == list(range(100))
    first, events = read(path)
    assert first["file_schema"] == "urn:ietf:params:qlog:file:sequential"
    assert first["title"] == "left"
    assert first["trace"]["vantage_point"] == {"name": "left", "type": "unknown"}
    reference = first["trace"]["common_fields"]["reference_time"]
    assert reference["wall_clock_time"] == "2027-01-15T08:00:00.250+00:00"
    check(events)
    assert qlog.error is None
    told = Counter(recorder.names)
    assert len(named(events, "packet_sent")) == told["packet_sent"]
    assert len(named(events, "packet_lost")) == told["packet_lost"] > 0
    sizes = [packet["raw"]["length"] for packet in named(events, "packet_sent")]
    assert sizes == [packet.size for packet in recorder.last("packet_sent")]
    assert {event["group_id"] for event in events if "group_id" in event} == {
        f"{recorder.of('channel_opening')[0][1].id:08x}"
    }
    assert named(events, "server_listening") == [{"ip": "127.0.0.1", "port": here.address[1]}]
    assert named(events, "connection_closed") == [
        {"initiator": "local", "reason": "closed by this side", "trigger": "done"}
    ]


def test_every_event_has_a_line(tmp_path: Path) -> None:
    """Driven in virtual time until everything that can be told has been."""
    path, recorder = tmp_path / "all.qlog", Recorder()
    with QlogWriter(path, clock=lambda: WHEN) as qlog:
        for name in EVENTS:
            method = getattr(qlog, name)
            assert method.__func__ is not getattr(sphtp.Instrument, name), name
        faults = Faults(loss=0.1, delay=0.02, jitter=0.02, duplicate=0.1, reorder=0.2)
        pair = Pair(3, faults, instrument=qlog, right_instrument=recorder)
        left, right = pair.open()
        assert len(pair.transfer(left, right, [bytes(500)] * 300)) == 300
        follow(left, b"x", pair.now, deadline=0.001)
        pair.touch(left)
        pair.run(1)
        pair.left.handle_datagram_untrusted(pair.now, ("10.9.9.9", 9), b"")
        left.close(pair.now)
        pair.touch(left)
        pair.run(3)
    _, events = read(path)
    check(events)
    names = {event["name"].partition(":")[2] for event in events}
    assert names >= {
        "connection_started",
        "connection_state_updated",
        "connection_closed",
        "packet_sent",
        "packet_received",
        "packets_acked",
        "packet_lost",
        "packet_dropped",
        "recovery_metrics_updated",
        "congestion_state_updated",
        "mtu_updated",
        "messages_queued",
        "message_settled",
    }
    assert named(events, "congestion_state_updated")[0]["old"] is None
    [settled] = named(events, "message_settled")
    assert settled["outcome"] == "expired"
    nowhere = {"ip": "10.9.9.9", "port": 9}
    dropped = named(events, "packet_dropped")
    assert {"raw": {"length": 0}, "remote": nowhere, "trigger": "malformed"} in dropped
    assert {"duplicate", "malformed"} <= {drop["trigger"] for drop in dropped}
    lost = {loss["trigger"] for loss in named(events, "packet_lost")}
    assert lost <= {"reordering_threshold", "time_threshold"}
    waits = [metrics["smoothed_rtt"] for metrics in named(events, "recovery_metrics_updated")
             if "smoothed_rtt" in metrics]  # fmt: skip
    assert all(40 <= wait <= 90 for wait in waits), "in milliseconds"


def test_a_log_of_nothing_still_says_what_it_is(tmp_path: Path) -> None:
    with QlogWriter(tmp_path / "none.qlog"):
        pass
    first, events = read(tmp_path / "none.qlog")
    assert first["trace"]
    assert events == []


def test_what_is_told_after_the_end_is_not_written(tmp_path: Path) -> None:
    with QlogWriter(tmp_path / "short.qlog") as qlog:
        qlog.node_opened(1.0, ("127.0.0.1", 1))
    qlog.node_closed(2.0)
    qlog.close()
    assert len(read(tmp_path / "short.qlog")[1]) == 1


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        QlogWriter(tmp_path / "nowhere" / "here.qlog")


@within_20_seconds
@pytest.mark.parametrize("messages", [1, 300])
async def test_a_full_disk_stops_the_log_and_nothing_else(
    messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    """On a device that is always full, noticed while writing or on closing."""
    with caplog.at_level(logging.ERROR, "sphtp"), QlogWriter("/dev/full") as qlog:
        async with (
            sphtp.open_node(settings=QUICK) as there,
            sphtp.open_node(settings=QUICK, instruments=[qlog]) as here,
            here.open_channel(*there.address) as channel,
        ):
            other = await there.accept()
            for number in range(messages):
                await (await channel.post(number)).wait()
            assert [await other.receive() for _ in range(messages)] == list(range(messages))
    assert qlog.error is not None
    assert qlog.error.strerror == "No space left on device"
    assert [record.name for record in caplog.records] == ["sphtp.qlog"]
    assert "/dev/full: No space left on device" in caplog.records[0].getMessage()
