"""A wire that is tapped, with real sockets: the relay sees all, and nobody's business."""

from random import Random

import pytest

from sphtp import Config
from sphtp.config import ChannelSettings
from sphtp.core.channel.security import Security
from sphtp.core.secure.identity import Identity
from sphtp.shell.node import open_channel, open_node
from sphtp.testing import Faults
from sphtp.testing.network import Link
from sphtp_client.relay.impairment import Traffic
from sphtp_client.relay.relay import open_relay
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

CLEAN = Faults(delay=0)
SECRET = b"nobody else's business, "
US, THEM = Identity.draw(Random("us")), Identity.draw(Random("them"))


class Tap:
    """Keeps a copy of all that is offered to be carried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captured = bytearray()
        offer = Link.offer

        def tapped(link: Link, now: float, datagram: bytes) -> list[tuple[float, bytes]]:
            self.captured += datagram + b"\0"
            return offer(link, now, datagram)

        monkeypatch.setattr(Link, "offer", tapped)


async def carry(security: tuple[Security, Security] | tuple[None, None], key: bytes | None) -> None:
    """Ten messages each way, all of them in packets."""
    us, them = security
    packets = ChannelSettings(shared_memory=0)
    async with (
        open_node(config=Config(channel=packets, security=them)) as node,
        open_relay(("127.0.0.1", 0), node.address, Traffic(1, CLEAN, CLEAN)) as relay,
        open_channel(*relay.address, key=key, config=Config(security=us)) as here,
        await node.accept() as there,
    ):
        for number in range(10):
            payload = SECRET * (1 + 100 * number)
            await here.send(payload)
            assert await there.receive() == payload
            await there.send(payload)
            assert await here.receive() == payload


async def test_a_capture_of_a_sealed_run_holds_nothing_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tap = Tap(monkeypatch)
    await carry((Security(identity=US), Security(identity=THEM)), THEM.public)
    assert len(tap.captured) > 200_000
    for part in (SECRET, SECRET[:8], SECRET[8:16], US.public, THEM.public):
        assert part not in tap.captured


async def test_the_tap_hears_what_is_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    tap = Tap(monkeypatch)
    await carry((None, None), None)
    assert SECRET in tap.captured
