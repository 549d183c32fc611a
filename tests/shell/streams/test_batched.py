"""Datagrams for a receiver that is in no hurry: they leave together, and all of them leave."""

from collections import Counter
from random import Random
from typing import cast

import trio

from sphtp.core.datagrams import MOST_DATAGRAMS, Address, Datagrams
from sphtp.core.stream.membership import Join
from sphtp.core.stream.sealing import FeedbackSeal, SealCounters
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import StatusMessage, encode_status
from sphtp.shell.hosted_streams import BATCHING, FanOutSocket, HostedSource
from sphtp.shell.udp import UdpSocket
from tests.fuzz.stands import TOPIC, Socket, make_channel

DISPLAY, RECORDER = ("10.0.0.1", 1), ("10.0.0.2", 2)
STEP = BATCHING / 100


class Hosting:
    """A source with a display, and a recorder whose STATUS says that it is in no hurry."""

    def __init__(self) -> None:
        self.socket = Socket()
        outlet = FanOutSocket(cast("UdpSocket", self.socket))
        self.hosted = HostedSource(
            Random(1),
            StreamSettings(flow_window=1 << 20),
            [TOPIC],
            outlet,
            lambda: None,
            SealCounters(),
            is_sealed=True,
        )
        self.now = trio.current_time()
        self.join(DISPLAY, is_batched=False)
        self.join(RECORDER, is_batched=True)
        self.hosted.send(self.now)
        self.now += 1.0
        self.hosted.send(self.now)
        self.socket.sent.clear()

    def join(self, address: Address, *, is_batched: bool) -> None:
        welcome = self.hosted.welcome(self.now, Join(TOPIC), make_channel(address))
        seal = FeedbackSeal(welcome.session, welcome.receiver, welcome.receiver_key)
        status = StatusMessage(welcome.window.lead, 1 << 24, is_batched=is_batched)
        row = Datagrams.of(address, seal.seal(encode_status(status)))
        assert self.hosted.handle_feedback_untrusted(self.now, welcome.receiver, row)

    def send(self, count: int) -> None:
        """Send messages one by one, a while after each other."""
        for _ in range(count):
            self.now += STEP
            self.hosted.source.send_many(self.now, 0, [b"state"])
            self.hosted.send(self.now)

    def sent(self) -> Counter[Address]:
        """Count the datagrams that have left, by address."""
        return Counter(row.address for row in self.socket.sent for _ in range(row.number))


async def test_they_leave_together_when_a_call_is_full(autojump_clock):
    hosting = Hosting()
    hosting.send(MOST_DATAGRAMS)
    assert hosting.sent() == {DISPLAY: MOST_DATAGRAMS}
    hosting.send(1)
    assert hosting.sent() == {DISPLAY: MOST_DATAGRAMS + 1, RECORDER: MOST_DATAGRAMS}
    data = {DISPLAY: b"", RECORDER: b""}
    for row in hosting.socket.sent:
        data[row.address] += row.data
    assert data[DISPLAY].startswith(data[RECORDER])


async def test_they_wait_for_a_moment_only(autojump_clock):
    hosting = Hosting()
    hosting.send(3)
    due = hosting.hosted.poll_timeout()
    assert due is not None
    assert due <= hosting.now + BATCHING
    hosting.now = due - STEP / 2
    hosting.hosted.send(hosting.now)
    assert hosting.sent() == {DISPLAY: 3}
    hosting.now = due
    hosting.hosted.send(hosting.now)
    assert hosting.sent() == {DISPLAY: 3, RECORDER: 3}


async def test_none_wait_when_a_source_ends_or_data_waits(autojump_clock):
    hosting = Hosting()
    hosting.send(3)
    hosting.hosted.close(hosting.now)
    hosting.hosted.send(hosting.now)
    sent = hosting.sent()
    assert sent[RECORDER] == sent[DISPLAY] >= 3
    crowded = Hosting()
    # More than any receiver's room: the reports of both are waited for.
    while not crowded.hosted.source.has_waiting:
        crowded.hosted.source.send_many(crowded.now, 0, [bytes(1000)] * 100)
        crowded.hosted.send(crowded.now)
    assert crowded.sent()[RECORDER] == crowded.sent()[DISPLAY] > 0
