"""UDP sockets on loopback."""

import pytest
import trio

from sphtp.errors import UnreachableError
from sphtp.shell.udp import UdpAddressError, UdpSocket, local_address_towards


async def received(udp: UdpSocket, count: int) -> list[bytes]:
    datagrams: list[bytes] = []
    with trio.fail_after(5):
        while len(datagrams) < count:
            await udp.wait_readable()
            datagrams += [datagram for _, datagram in udp.receive_batch(100)]
    return datagrams


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_datagrams_arrive_with_the_address_of_their_sender(host):
    with UdpSocket(host, 0) as left, UdpSocket(host, 0) as right:
        assert left.send(right.address, b"hello")
        with trio.fail_after(5):
            await right.wait_readable()
        assert list(right.receive_batch(10)) == [(left.address, b"hello")]
        assert (left.counters.sent, right.counters.received) == (1, 1)


async def test_a_batch_is_bounded():
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        for number in range(5):
            left.send(right.address, bytes([number]))
        with trio.fail_after(5):
            await right.wait_readable()
        assert len(list(right.receive_batch(2))) == 2
        assert await received(right, 3) == [b"\x02", b"\x03", b"\x04"]


async def test_loss_on_purpose_is_counted():
    verdicts = iter([True, False, True])
    with (
        UdpSocket("127.0.0.1", 0) as left,
        UdpSocket("127.0.0.1", 0, drop=lambda: next(verdicts)) as right,
    ):
        for number in range(3):
            left.send(right.address, bytes([number]))
        assert await received(right, 1) == [b"\x01"]
        list(right.receive_batch(10))
        assert right.counters.dropped_on_purpose == 2


async def test_a_port_that_nobody_listens_on_is_not_an_error():
    with UdpSocket("127.0.0.1", 0) as gone:
        nobody = gone.address
    with UdpSocket("127.0.0.1", 0) as left:
        for _ in range(3):
            assert left.send(nobody, b"?")
            assert list(left.receive_batch(10)) == []


async def test_a_datagram_that_no_network_carries_is_lost_not_raised():
    with UdpSocket("127.0.0.1", 0) as left:
        assert left.send(left.address, b"x" * 70_000)
        assert left.counters.send_errors == 1


async def test_closing_wakes_a_task_that_waits():
    udp = UdpSocket("127.0.0.1", 0)

    async def wait():
        with pytest.raises(trio.ClosedResourceError):
            await udp.wait_readable()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        udp.close()
        udp.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
async def test_an_address_that_cannot_be_bound_is_named(host):
    with pytest.raises(UdpAddressError, match=host):
        UdpSocket(host, 0)


async def test_a_port_in_use_is_named():
    with UdpSocket("127.0.0.1", 0) as first:
        port = first.address[1]
        with pytest.raises(UdpAddressError, match=f"127.0.0.1:{port}: Address already in use"):
            UdpSocket("127.0.0.1", port)


async def test_loopback_is_faced_from_loopback():
    assert await local_address_towards("127.0.0.1", 9) == "127.0.0.1"


async def test_no_way_to_an_unknown_name_is_an_error():
    with pytest.raises(UnreachableError, match="no way to no such host"):
        await local_address_towards("no such host", 9)
