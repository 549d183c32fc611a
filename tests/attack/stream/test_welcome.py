"""A source that lies to those who join it: they are told no more than it can say, and are well."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from sphtp.core.stream.events import Loss
from sphtp.core.stream.membership import JoinRefused, Member, Welcome
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.core.stream.wire import Window
from sphtp.errors import RefusedError, UnreachableError
from sphtp.shell import stream_admission as admission
from sphtp.shell.channel import Channel
from sphtp.shell.stream_admission import send_message
from sphtp.shell.udp import MulticastGroup, UdpSocket, open_receiver
from tests.attack.stream.wire import TOPIC, opened, streaming
from tests.deadline import within_20_seconds
from tests.fuzz.census import census

pytestmark = within_20_seconds

HUGE = 2**63 - 1
MOST_BYTES = 5_000_000

BRIEF = StreamSettings(linger=0.02, session_min=0.005, lenient=True)
QUICK = StreamSettings(fetch_interval=0.01, fetch_timeout=0.05, generation=0.45)


def lie(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Welcome], Member] = lambda it: it,
) -> list[Channel]:
    """Let every source tell those who join something else; return the channels of these."""
    channels = list[Channel]()

    async def lying(channel: Channel, message: Member) -> None:
        channels.append(channel)
        await send_message(channel, change(message) if isinstance(message, Welcome) else message)

    monkeypatch.setattr(admission, "send_message", lying)
    return channels


@pytest.fixture
def subscriptions(monkeypatch: pytest.MonkeyPatch) -> list[SubscriptionMachine]:
    """The machines of those who join."""
    made = list[SubscriptionMachine]()

    def make(*args: Any, **options: Any) -> SubscriptionMachine:
        made.append(SubscriptionMachine(*args, **options))
        return made[-1]

    monkeypatch.setattr("sphtp.core.stream.subscription.SubscriptionMachine", make)
    return made


async def subscribe(
    subscriptions: list[SubscriptionMachine], settings: StreamSettings | None = None
) -> list[Any]:
    """Join a source that lies, and read what it sends until it is gone or seems to be."""
    async with (
        opened() as here,
        opened() as there,
        here.open_source(TOPIC, settings=BRIEF) as source,
        there.subscribe(
            *here.address, topic=TOPIC, late_join=settings is not None, settings=settings
        ) as stream,
    ):
        for number in range(20):
            await source.send(number)
        await source.aclose()
        (subscription,) = subscriptions
        held = census(subscription)
        assert held.size < MOST_BYTES
        assert held.entries < 50_000
        subscription.handle_gone(trio.current_time())
        return [item async for item in stream]


@pytest.mark.parametrize("terms", [None, QUICK], ids=["live", "late"])
@pytest.mark.parametrize(
    "change",
    [
        lambda it: it._replace(window=Window(HUGE, 1)),
        lambda it: it._replace(window=Window(2**64 - 2, 2**64 - 1)),
        lambda it: it._replace(next=HUGE),
        lambda it: it._replace(next=2**64 - 1),
        lambda it: it._replace(topic=65_535),
        lambda it: it._replace(reach=2**32 - 1),
        lambda it: it._replace(reach=1),
        lambda it: it._replace(reach=0),
        lambda it: it._replace(session=it.session ^ 1),
        lambda it: it._replace(receiver=it.receiver ^ 1),
        lambda it: it._replace(history=9),
        lambda it: it._replace(history=0),
        lambda it: it._replace(key=it.key._replace(key=bytes(32))),
        lambda it: it._replace(key=it.key._replace(first=2**64 - 1)),
        lambda it: it._replace(receiver_key=bytes(32)),
    ],
)
async def test_a_welcome_that_lies_brings_nothing_that_was_not_sent_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Welcome], Welcome],
    terms: StreamSettings | None,
    subscriptions: list[SubscriptionMachine],
) -> None:
    lie(monkeypatch, change)
    told = await subscribe(subscriptions, terms)
    messages = [item for item in told if not isinstance(item, Loss)]
    assert messages == sorted(set(messages))
    assert set(messages) <= set(range(20))
    assert len(told) - len(messages) < 10


async def test_a_stream_in_the_clear_is_no_answer_to_a_node_that_seals(
    monkeypatch: pytest.MonkeyPatch, subscriptions: list[SubscriptionMachine]
) -> None:
    lie(monkeypatch, lambda it: it._replace(key=None, receiver_key=b""))
    with pytest.raises(UnreachableError, match="is malformed"):
        await subscribe(subscriptions)


@pytest.mark.parametrize("group", ["10.0.0.1", "nowhere", "ff02::1", "255.255.255.255"])
async def test_a_group_that_is_none_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, group: str, subscriptions: list[SubscriptionMachine]
) -> None:
    lie(monkeypatch, lambda it: it._replace(group=group, port=9000))
    with pytest.raises(UnreachableError, match="group"):
        await subscribe(subscriptions)


async def test_a_group_is_joined_on_the_interface_that_the_reader_has_named_and_on_no_other(
    monkeypatch: pytest.MonkeyPatch, subscriptions: list[SubscriptionMachine]
) -> None:
    """Whatever group a source names, nothing of it is said to networks that were not meant."""
    joined = list[MulticastGroup]()
    opening = open_receiver

    def watched(beside: UdpSocket, group: MulticastGroup) -> UdpSocket:
        joined.append(group)
        return opening(beside, group)

    monkeypatch.setattr("sphtp.shell.subscription.open_receiver", watched)
    lie(monkeypatch, lambda it: it._replace(group="224.0.0.251", port=53_535))
    await subscribe(subscriptions)
    assert joined == [MulticastGroup("224.0.0.251", 53_535, "127.0.0.1")]


@pytest.mark.parametrize("word", ["no", "no\x1b[2J", "n" * 5000])
async def test_a_refusal_is_shown_as_text_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    async with opened() as here, opened() as there, here.open_source(TOPIC):
        lie(monkeypatch, lambda _: JoinRefused(word))
        with pytest.raises(RefusedError) as caught:
            async with there.subscribe(*here.address, topic=TOPIC):
                pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000


async def test_a_source_that_says_nonsense_on_its_channel_is_taken_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = lie(monkeypatch)
    async with streaming() as (_, _, source, stream, _):
        await source.send("before")
        assert await stream.receive() == "before"
        (channel,) = channels
        await channel.send(b"\xff\xff")
        with pytest.raises(trio.BrokenResourceError, match="its node is gone"):
            await stream.receive()
