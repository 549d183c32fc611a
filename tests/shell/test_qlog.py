"""The log of a node: what tools for QUIC read, and what adds up to what happened."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import sphtp
from sphtp import observe
from sphtp.core.datagrams import Datagrams
from sphtp.observe import QlogWriter
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow, send_once
from tests.deadline import within_20_seconds
from tests.qlog_drafts import OURS, STANDARD, read_qlog
from tests.recorder import EVENTS, Recorder

QUICK = sphtp.config.ChannelSettings(linger=0.05)
LANES = sphtp.config.ChannelSettings(lanes=(sphtp.config.Lane(), sphtp.config.Lane()))
WHEN = 1_800_000_000.25

Events = list[dict[str, Any]]


def named(events: Events, name: str) -> Events:
    assert name in {**STANDARD, **OURS}
    return [event["data"] for event in events if event["name"] == name]


def frames(packets: Events, kind: str) -> Events:
    found = (frame for packet in packets for frame in packet["frames"])
    return [frame for frame in found if frame["frame_type"] == kind]


def numbers(packets: Events) -> list[int]:
    return [packet["header"]["packet_number"] for packet in packets]


def acked(packets: Events) -> set[int]:
    ranges = [row for ack in frames(packets, "ack") for row in ack["acked_ranges"]]
    return {number for row in ranges for number in range(row[0], row[-1] + 1)}


@within_20_seconds
async def test_what_real_nodes_do_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "here.sqlog"
    recorder = Recorder()
    with QlogWriter(path, title="left", vantage_point="client", clock=lambda: WHEN) as qlog:
        async with (
            sphtp.open_node(
                config=sphtp.Config(
                    channel=QUICK, impairment=sphtp.config.Impairment(loss=0.1), seed=1
                )
            ) as there,
            sphtp.open_node(
                config=sphtp.Config(channel=QUICK, instruments=[qlog, recorder])
            ) as here,
            here.open_channel(*there.address) as channel,
        ):
            other = await there.accept()
            for number in range(100):
                await channel.send([number, bytes(1000)])
            assert [(await other.receive())[0] for _ in range(100)] == list(range(100))
    first, events = read_qlog(path)
    assert first["title"] == "left"
    assert first["trace"]["vantage_point"] == {"name": "left", "type": "client"}
    assert first["trace"]["common_fields"]["reference_time"] == WHEN * 1e3
    assert qlog.error is None
    told = Counter(recorder.names)
    sent, received = (named(events, f"transport:packet_{what}") for what in ("sent", "received"))
    assert len(named(events, "recovery:packet_lost")) == told["packet_lost"] > 0
    described = recorder.last("packet_sent")
    assert numbers(sent) == [packet.sequence for packet in described]
    assert [packet["raw"]["length"] for packet in sent] == [packet.size for packet in described]
    first_acks = {number for one in named(events, "transport:packets_acked")
                  for number in one["packet_numbers"]}  # fmt: skip
    assert first_acks == acked(received) <= set(numbers(sent))
    assert acked(sent) <= set(numbers(received))
    assert {event["group_id"] for event in events} == {
        "node",
        f"{recorder.of('channel_opening')[0][1].id:08x}",
    }
    port = here.address[1]
    assert events[0]["data"] == {"ip_v4": "127.0.0.1", "port_v4": port}
    [started] = named(events, "connectivity:connection_started")
    assert (started["src_port"], started["dst_port"]) == (port, there.address[1])
    assert named(events, "connectivity:connection_closed") == [
        {
            "owner": "local",
            "application_code": 0,
            "close_reason": "done",
            "reason": "closed by this side",
            "trigger": "clean",
        }
    ]


def logged(
    path: Path, faults: Faults, sizes: Iterable[int], settings: sphtp.config.ChannelSettings = LANES
) -> tuple[Events, Events]:
    """Send messages of these sizes in two lanes by turns; return what either side logged of it."""
    logs = path / "left", path / "right"
    with QlogWriter(logs[0]) as here, QlogWriter(logs[1]) as there:
        pair = Pair(3, faults, settings, instrument=here, right_instrument=there)
        left, right = pair.open()
        for number, size in enumerate(sizes):
            left.port.send_many([bytes(size)], lane=number % 2)
        pair.transfer(left, right, [b"last"])
        send_once(left, b"once")
        follow(left, b"x", pair.now, deadline=0.001)
        pair.touch(left)
        pair.run(1)
        pair.left.handle_datagrams_untrusted(pair.now, Datagrams.of(("10.9.9.9", 9), b""))
        left.close(pair.now)
        pair.touch(left)
        pair.run(3)
    return read_qlog(logs[0])[1], read_qlog(logs[1])[1]


MIXED = [500, 3, 0, 12_000, 80] * 40
BAD = Faults(loss=0.1, delay=0.02, jitter=0.02, duplicate=0.1, reorder=0.2)


@pytest.fixture(scope="module")
def bad_day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Events, Events]:
    """What either side logged on a bad network."""
    return logged(tmp_path_factory.mktemp("bad"), BAD, MIXED)


def test_every_event_has_a_line_of_the_standard_or_of_ours(bad_day: tuple[Events, Events]) -> None:
    """Driven in virtual time until everything that can be told has been."""
    for name in set(EVENTS) - {"credit_sent", "credit_received"}:
        assert getattr(QlogWriter, name) is not getattr(sphtp.observe.Instrument, name), name
    events, others = bad_day
    names = {event["name"] for event in events}
    assert names >= set(STANDARD) - {"connectivity:server_listening", "recovery:loss_timer_updated"}
    assert "sphtp:message_settled" in names
    assert "old" not in named(events, "recovery:congestion_state_updated")[0]
    assert {one["outcome"] for one in named(events, "sphtp:message_settled")} >= {"expired"}
    dropped = named(events, "transport:packet_dropped")
    nowhere = {"remote": {"ip": "10.9.9.9", "port": 9}, "reason": "malformed"}
    assert {"raw": {"length": 0}, "details": nowhere, "trigger": "invalid"} in dropped
    assert {"duplicate", "malformed"} <= {drop["details"]["reason"] for drop in dropped}
    waits = [metrics["smoothed_rtt"] for metrics in named(events, "recovery:metrics_updated")
             if "smoothed_rtt" in metrics]  # fmt: skip
    assert all(40 <= wait <= 90 for wait in waits), "in milliseconds"
    queued = named(events, "transport:data_moved")
    assert sum(one["length"] for one in queued) == sum(MIXED) + len(b"last" + b"once" + b"x")
    sent = named(events, "transport:packet_sent")
    kinds = {frame["frame_type"] for packet in sent for frame in packet["frames"]}
    assert kinds >= {"ack", "stream", "datagram", "padding", "ping", "connection_close"}
    limits = [
        frame["maximum"] for frame in frames(named(others, "transport:packet_sent"), "max_data")
    ]
    assert limits == sorted(set(limits))
    assert {
        frame["maximum"] for frame in frames(named(events, "transport:packet_received"), "max_data")
    } <= set(limits)


def places(packets: Events) -> dict[int, list[tuple[int, int]]]:
    """Where the bytes of each stream lie that these packets carry, in the order of packets."""
    found = defaultdict(list)
    for frame in frames(packets, "stream"):
        found[frame["stream_id"]].append((frame["offset"], frame["length"]))
    return found


def test_the_frames_of_a_lane_fill_its_stream(bad_day: tuple[Events, Events]) -> None:
    """However often they are sent, and with lengths that differ: no gap, and no byte twice."""
    events, others = bad_day
    sent, received = (
        named(events, "transport:packet_sent"),
        named(others, "transport:packet_received"),
    )
    found = places(sent)
    sizes = {0: sum(MIXED[::2]) + 4, 4: sum(MIXED[1::2])}
    assert set(found) == set(sizes), "four times the lane"
    for stream, parts in found.items():
        assert len(parts) > len(set(parts)), "some are sent again"
        end = 0
        for offset, length in sorted(set(parts)):
            assert offset <= end, "no gap"
            end = max(end, offset + length)
        assert end >= sizes[stream]
    carried = {number: packet["frames"] for number, packet in zip(numbers(sent), sent, strict=True)}
    for number, packet in zip(numbers(received), received, strict=True):
        pairs = zip(carried[number], packet["frames"], strict=True)
        assert all({**one, "offset": 0} == {**other, "offset": 0} for one, other in pairs)


def test_both_sides_give_the_same_offsets_when_nothing_is_lost(tmp_path: Path) -> None:
    events, others = logged(tmp_path, Faults(delay=0.01), MIXED)
    sent = places(named(events, "transport:packet_sent"))
    assert sent == places(named(others, "transport:packet_received"))
    for parts in sent.values():
        starts = [offset for offset, _ in parts]
        assert starts == [sum(length for _, length in parts[:n]) for n in range(len(parts))]


def test_a_log_of_nothing_still_says_what_it_is(tmp_path: Path) -> None:
    with QlogWriter(tmp_path / "none.sqlog"):
        pass
    first, events = read_qlog(tmp_path / "none.sqlog")
    assert first["trace"]
    assert events == []


def test_offsets_go_on_when_ids_begin_anew(tmp_path: Path) -> None:
    """Ids have 16 bits. What is sent again, a quarter of them later, has its place all the same."""
    left, _ = Pair(1).open()
    channel = observe.WatchedChannel(left)
    with QlogWriter(tmp_path / "long.sqlog") as qlog:
        qlog.channel_opening(0.0, channel)
        for number in range(2000):
            for first in (100 * number, max(100 * number - 16_000, 0)):
                frame = observe.FrameInfo("messages", 1, 100, 1000, first & 0xFFFF)
                qlog.packet_sent(0.0, channel, observe.PacketInfo(number, 1016, (frame,)))
    packets = named(read_qlog(tmp_path / "long.sqlog")[1], "transport:packet_sent")
    offsets = [frame["offset"] for frame in frames(packets, "stream")]
    assert offsets[::2] == [1000 * number for number in range(2000)]
    assert offsets[1::2] == [max(1000 * number - 160_000, 0) for number in range(2000)]


def test_times_never_go_back(tmp_path: Path) -> None:
    with QlogWriter(tmp_path / "late.sqlog") as qlog:
        for now in (5.0, 5.002, 5.001, 5.003):
            qlog.node_closed(now)
    assert [event["time"] for event in read_qlog(tmp_path / "late.sqlog")[1]] == [0, 2, 2, 3]


def test_what_is_told_after_the_end_is_not_written(tmp_path: Path) -> None:
    with QlogWriter(tmp_path / "short.sqlog") as qlog:
        qlog.node_opened(1.0, ("127.0.0.1", 1))
    qlog.node_closed(2.0)
    qlog.close()
    assert len(read_qlog(tmp_path / "short.sqlog")[1]) == 1


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        QlogWriter(tmp_path / "nowhere" / "here.sqlog")


def test_a_vantage_point_that_there_is_not_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(
        sphtp.errors.SettingsError, match="'clinet'; allowed is client, server, unknown"
    ):
        QlogWriter(tmp_path / "here.sqlog", vantage_point="clinet")  # type: ignore[arg-type]


@within_20_seconds
@pytest.mark.parametrize("messages", [1, 300])
async def test_a_full_disk_stops_the_log_and_nothing_else(
    messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    """On a device that is always full, noticed while writing or on closing."""
    with caplog.at_level(logging.ERROR, "sphtp"), QlogWriter("/dev/full") as qlog:
        async with (
            sphtp.open_node(config=sphtp.Config(channel=QUICK)) as there,
            sphtp.open_node(config=sphtp.Config(channel=QUICK, instruments=[qlog])) as here,
            here.open_channel(*there.address) as channel,
        ):
            other = await there.accept()
            for number in range(messages):
                await channel.send([number, bytes(1000)])
            assert [(await other.receive())[0] for _ in range(messages)] == list(range(messages))
    assert qlog.error is not None
    assert qlog.error.strerror == "No space left on device"
    assert [record.name for record in caplog.records] == ["sphtp.qlog"]
    assert "/dev/full: No space left on device" in caplog.records[0].getMessage()
