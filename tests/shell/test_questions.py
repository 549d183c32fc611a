"""What a program says of keys may go wrong, and takes nobody down."""

import logging
from random import Random

import pytest

from sphtp import ChannelSettings
from sphtp.core.channel.security import Security
from sphtp.core.secure.identity import Identity
from sphtp.errors import RefusedError
from sphtp.shell.node import open_node
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

HASTY = ChannelSettings(connect_timeout=1.0, linger=0.1)
FRIEND = Identity.draw(Random("friend"))


def confused(key: bytes) -> bool:
    if key != FRIEND.public:
        raise KeyError("the database is away")
    return True


async def test_an_allow_that_raises_lets_nobody_in_and_takes_nobody_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        open_node(settings=HASTY, security=Security(allow=confused)) as node,
        open_node(settings=HASTY, security=Security(identity=FRIEND)) as friend,
        open_node(settings=HASTY) as stranger,
        friend.open_channel(*node.address) as channel,
    ):
        with pytest.raises(RefusedError, match="does not let this peer in") as refused:
            async with stranger.open_channel(*node.address):
                pass
        assert refused.value.reason == "denied"
        await channel.send("still here")
        assert await (await node.accept()).receive() == "still here"
    check_logged(caplog, "allow")


async def test_a_pin_that_raises_approves_of_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with open_node(settings=HASTY) as node, open_node(settings=HASTY) as other:
        with pytest.raises(RefusedError, match="its key is not that of the peer wanted"):
            async with other.open_channel(*node.address, pin=confused):
                pass
        async with other.open_channel(*node.address) as channel:
            await channel.send("still here")
            assert await (await node.accept()).receive() == "still here"
    check_logged(caplog, "pin")


def check_logged(caplog: pytest.LogCaptureFixture, name: str) -> None:
    logged = [it for it in caplog.records if it.name == "sphtp.security"]
    assert logged
    for record in logged:
        assert record.levelno == logging.ERROR
        assert record.getMessage().startswith(f"{name} raised")
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], KeyError)
