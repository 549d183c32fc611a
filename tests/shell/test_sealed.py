"""Sealed nodes over real sockets: who may speak with whom, and what is said when not."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio

from sphtp import Channel, Config
from sphtp.config import ChannelSettings
from sphtp.core.channel.security import Security
from sphtp.core.secure.identity import Identity
from sphtp.errors import RefusedError, SettingsError, UnreachableError
from sphtp.shell.node import Node, open_channel, open_node
from tests.deadline import within_20_seconds
from tests.sockets import Sockets

pytestmark = within_20_seconds

HASTY = ChannelSettings(connect_timeout=0.6, linger=0.1)
US, THEM, OTHER = (Identity.draw(Random(name)) for name in ("us", "them", "another"))
PSK = bytes(range(32))
AS_US = Security(identity=US)


@asynccontextmanager
async def answering(security: Security | None) -> AsyncIterator[Node]:
    """A node that sends the first message of each channel back."""

    async def answer(channel: Channel) -> None:
        await channel.send(await channel.receive())

    async with (
        open_node(config=Config(channel=HASTY, security=security)) as node,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(node.serve_channels, answer)
        yield node
        nursery.cancel_scope.cancel()


async def ask(node: Node, security: Security | None = AS_US, **how: Any) -> bytes:
    """Say something, hear it back, and return whose key it is that said so."""
    async with open_channel(
        *node.address, **how, config=Config(channel=HASTY, security=security)
    ) as channel:
        await channel.send("hello")
        assert await channel.receive() == "hello"
        return channel.peer_key


@pytest.mark.parametrize(
    "how",
    [{}, {"key": THEM.public}],
    ids=["anybody", "key"],
)
async def test_a_channel_knows_the_key_of_its_peer(how: dict[str, Any]) -> None:
    async with answering(Security(identity=THEM)) as node:
        assert await ask(node, **how) == THEM.public
        statistics = node.statistics()
        assert (statistics.handshakes, statistics.cookies_sent) == (1, 1)
        assert (statistics.forged, statistics.malformed, statistics.in_the_clear) == (0, 0, 0)


async def test_a_side_that_is_dialled_knows_the_key_of_who_dials() -> None:
    async with (
        open_node(config=Config(security=Security(identity=THEM))) as node,
        open_channel(*node.address, config=Config(security=Security(identity=US))),
        await node.accept() as channel,
    ):
        assert channel.peer_key == US.public


async def test_in_the_clear_there_are_no_keys() -> None:
    async with answering(None) as node:
        assert await ask(node, None) == b""
        assert node.statistics().handshakes == 0
        with pytest.raises(SettingsError, match="in the clear"):
            await ask(node, None, key=THEM.public)


async def test_whoever_has_another_key_is_not_spoken_with() -> None:
    async with answering(Security(identity=THEM)) as node:
        with pytest.raises(RefusedError, match="another peer than the one wanted"):
            await ask(node, key=OTHER.public)


async def test_those_who_are_not_allowed_are_denied() -> None:
    async with answering(Security(allow={US.public})) as node:
        assert await ask(node)
        with pytest.raises(RefusedError, match="does not let this peer in"):
            await ask(node, Security(identity=OTHER))
        assert node.statistics().denied == 1


async def test_a_shared_secret_is_needed_on_both_sides() -> None:
    async with answering(Security(identity=THEM, psk=PSK)) as node:
        assert await ask(node, Security(psk=PSK)) == THEM.public
        assert await ask(node, Security(psk=PSK), key=THEM.public) == THEM.public
        for other in (None, PSK[::-1]):
            with pytest.raises((RefusedError, UnreachableError)):
                await ask(node, Security(psk=other))
        assert node.statistics().forged > 0
    with pytest.raises(SettingsError, match="psk has 31 bytes"):
        Security(psk=bytes(31))


@pytest.mark.parametrize("key", [b"", b"x", bytes(32)])
async def test_a_key_that_is_none_is_named_and_leaves_nothing(key: bytes) -> None:
    async with open_node(config=Config(channel=HASTY)) as node:
        with pytest.raises(SettingsError, match=r"^key "):
            async with node.open_channel("127.0.0.1", 9, key=key):
                pass
        assert node.statistics().sent == 0


async def test_one_in_the_clear_and_one_that_is_sealed_say_so() -> None:
    async with answering(None) as clear, answering(Security()) as sealed:
        with pytest.raises(RefusedError, match="takes no sealed channels"):
            await ask(clear)
        with pytest.raises(RefusedError, match="takes sealed channels only"):
            await ask(sealed, None)
        assert clear.statistics().refused_sealed > 0
        assert sealed.statistics().in_the_clear > 0


async def test_a_peer_that_restarted_is_known_to_have(sockets: Sockets) -> None:
    """With the same identity at the same port: long before the timeout, the other side knows."""
    them = Security(identity=THEM)
    async with AsyncExitStack() as stack, open_node(config=Config(channel=HASTY)) as node:
        first = await stack.enter_async_context(
            open_node(config=Config(channel=HASTY, security=them))
        )
        async with node.open_channel(*first.address) as channel, await first.accept() as there:
            await channel.send("x")
            await there.receive()
            # As if it had been killed: it says no word.
            sockets[first.address].hold()
            await stack.aclose()
            async with open_node(
                "127.0.0.1", first.address[1], config=Config(security=them)
            ) as second:
                with pytest.raises(trio.BrokenResourceError, match="has forgotten the channel"):
                    await channel.receive()
                assert second.statistics().resets_sent == 1
                assert node.statistics().resets_taken == 1
