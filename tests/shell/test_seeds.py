"""Two runs with one seed: the choices are the same, and no key, token, cookie or nonce is."""

import socket

import pytest
import trio

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.records import ServerAddress
from sphtp.security import Security
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds

SEED = 7
WINDOW = 8
"""Bytes in a row that two runs must not share: no key or token is shorter, but ids of 32 bits."""

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
PEER = sphtp.Identity(bytes(range(1, 33)))


async def first_datagram(security: Security | None, key: bytes | None) -> bytes:
    """The datagram with which a node that has the seed opens a channel."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        heard: list[bytes] = []
        async with (
            open_node(config=sphtp.Config(security=security, seed=SEED)) as node,
            trio.open_nursery() as nursery,
        ):

            async def dial() -> None:
                async with node.open_channel(*listener.getsockname(), key=key):
                    pass

            nursery.start_soon(dial)
            await trio.lowlevel.wait_readable(listener)
            heard.append(listener.recv(2048))
            nursery.cancel_scope.cancel()
    return heard[0]


def shared(one: bytes, other: bytes) -> set[bytes]:
    """What both have in a row, at whatever offset.

    Padding is left out, and so are numbers of few bytes, such as a time in milliseconds.
    """
    rows = ({d[at : at + WINDOW] for at in range(len(d) - WINDOW + 1)} for d in (one, other))
    return {row for row in set.intersection(*rows) if len(set(row)) > WINDOW // 2}


@pytest.mark.parametrize(
    "key", [PEER.public, None], ids=["whoever is known", "whoever is not known"]
)
async def test_a_listener_that_knows_the_seed_knows_no_key(key: bytes | None) -> None:
    """What must hold: no ephemeral key, no cookie, no token of a run says anything of another's."""
    assert shared(*[await first_datagram(Security(), key) for _ in range(2)]) == set()


async def test_ids_of_connections_and_tokens_in_the_clear_follow_from_no_seed() -> None:
    one, other = [await first_datagram(None, None) for _ in range(2)]
    assert one != other


async def test_a_client_with_a_seed_is_somebody_new_each_time() -> None:
    """What must hold: the same id is drawn, by another key pair and with another nonce."""
    seen = []
    for _ in range(2):
        async with (
            open_server(
                ServerAddress.parse("tcp://127.0.0.1:0,0"),
                new_cluster=True,
                config=sphtp.Config(timers=TIMERS, seed=SEED),
            ) as server,
            open_client([server.address], config=sphtp.Config(timers=TIMERS, seed=SEED)) as client,
        ):
            member = server.view.members[0]
            record = server.clients[client.id]
            seen.append((server.id, client.id, record.key, record.nonce, member.nonce))
    ids, (one, other) = {told[:2] for told in seen}, (set(told[2:]) for told in seen)
    assert len(ids) == 1
    assert not one & other
