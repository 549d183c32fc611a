"""Instruments in nodes, over real sockets."""

import logging

import pytest
import trio

import sphtp
from sphtp import Outcome
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.observe import Instrument
from sphtp.shell.instruments import EVENTS, Instruments
from tests.deadline import within_20_seconds
from tests.recorder import Recorder

pytestmark = within_20_seconds

QUICK = sphtp.config.ChannelSettings(linger=0.05)


async def exchange(*instruments: Instrument) -> None:
    """Send a few messages from a node that is watched to one that is not, and close."""
    async with (
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as there,
        sphtp.open_node(config=sphtp.Config(channel=QUICK, instruments=instruments)) as here,
        here.open_channel(*there.address) as channel,
    ):
        other = await there.accept()
        for number in range(10):
            await channel.post(number)
        receipt = await channel.post("last")
        assert [await other.receive() for _ in range(10)] == list(range(10))
        assert await receipt.wait() is Outcome.DELIVERED


async def test_a_node_tells_of_its_life_and_that_of_its_channels() -> None:
    recorder = Recorder()
    before = trio.current_time()
    await exchange(recorder)
    assert recorder.names[:2] == ["node_opened", "channel_opening"]
    assert recorder.names[-1] == "node_closed"
    [(_, address)] = recorder.of("node_opened")
    assert address[0] == "127.0.0.1"
    assert address[1] > 0
    [(_, _, closed)] = recorder.of("channel_closed")
    assert closed.reason is CloseReason.DONE
    assert sum(recorder.last("messages_queued", 4)) == 11
    assert [message.outcome for message in recorder.last("message_settled")] == (
        [Outcome.DELIVERED] * 11
    )
    assert {message.size for message in recorder.last("message_settled")} == {1, 5}
    times = [event[0] for _, event in recorder.told]
    assert times == sorted(times)
    assert before <= times[0]
    assert times[-1] <= trio.current_time()


async def test_several_are_told_the_same() -> None:
    first, second = Recorder(), Recorder()
    await exchange(first, second)
    assert first.told == second.told


@pytest.mark.parametrize("name", ["node_opened", "packet_sent", "message_settled", "node_closed"])
async def test_one_that_raises_is_removed_and_harms_nobody(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    class Faulty(Recorder):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, name, self.fail)

        def fail(self, *_: object) -> None:
            calls.append(name)
            raise ValueError("not today")

    faulty, sound = Faulty(), Recorder()
    with caplog.at_level(logging.ERROR, "sphtp.instrument"):
        await exchange(faulty, sound)
    assert calls == [name], "it is told nothing after its first error"
    told = sound.names.index(name)
    assert faulty.names == sound.names[:told]
    [record] = caplog.records
    assert record.name == "sphtp.instrument"
    assert name in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    assert sound.names[-1] == "node_closed"


async def test_only_the_methods_that_one_has_are_called() -> None:
    class Losses(Instrument):
        lost = 0

        def packet_lost(self, *_: object) -> None:
            self.lost += 1

    everybody = Instruments([Losses()])
    own = {name for name in EVENTS if name in vars(everybody)}
    assert own == {"packet_lost"}


async def test_a_channel_opened_directly_can_be_watched() -> None:
    recorder = Recorder()
    async with (
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as node,
        sphtp.open_channel(
            *node.address, config=sphtp.Config(channel=QUICK, instruments=[recorder])
        ) as channel,
    ):
        await channel.send("x")
        assert await (await node.accept()).receive() == "x"
    assert recorder.names[0] == "node_opened"
    assert len(recorder.of("channel_closed")) == 1
