"""How large datagrams grow on real sockets."""

from collections import deque

import pytest
import trio

from sphtp.core.datagrams import Datagrams
from sphtp.shell.udp import MTU_DISCOVER, PMTUDISC_PROBE, UdpSocket, bind
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds

# Loopback carries packets of 64 KiB; the rest is headers of IP and UDP.
LOOPBACK = 65_536
HEADERS = {"127.0.0.1": 28, "::1": 48}


@pytest.mark.parametrize("host", HEADERS)
async def test_datagrams_grow_to_what_the_host_sends(host: str) -> None:
    async with open_node(host) as left, open_node(host) as right:
        async with left.open_channel(*right.address) as here, await right.accept() as there:
            messages = [bytes([number % 256]) * 50_000 for number in range(300)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.send_many, messages)
                received: list[bytes] = []
                while len(received) < len(messages):
                    received += await there.receive_many()
            largest = min(LOOPBACK - HEADERS[host], 65_507)
            figures = here.statistics()
        assert received == messages
        assert largest * 15 / 16 <= figures.datagram_size <= largest
        # Over IPv6 the largest size of all is refused by the host; that it tells is no loss.
        refused = left.statistics().send_errors
        assert (refused == 0) == (largest == 65_507)


@pytest.mark.parametrize("host", HEADERS)
async def test_nobody_on_the_way_may_cut_a_datagram(host: str) -> None:
    with bind(host, 0, is_shared=False) as bound:
        for level, option in MTU_DISCOVER[bound.family]:
            assert bound.getsockopt(level, option) == PMTUDISC_PROBE


async def test_a_size_that_the_host_refuses_is_told_and_lost_and_the_next_one_goes() -> None:
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        rows = deque(
            [Datagrams.of(right.address, bytes(65_508)), Datagrams.of(right.address, b"small")]
        )
        assert left.send(rows)
        assert list(left.too_large) == [(right.address, 65_508)]
        assert (left.counters.sent, left.counters.send_errors) == (2, 1)
        assert [row.data for row in right.receive_batch(10)] == [b"small"]
