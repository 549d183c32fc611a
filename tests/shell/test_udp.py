"""UDP sockets on loopback."""

import errno
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from sphtp.core.datagrams import Address, Datagrams
from sphtp.errors import UdpAddressError
from sphtp.shell import udp as udp_module
from sphtp.shell.udp import UdpSocket, bind, has_offload

with bind("127.0.0.1", 0, is_shared=False) as _probe:
    OFFLOAD = has_offload(_probe)
    """Whether this kernel cuts and joins datagrams."""


def forbid_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that are made from now on neither cut nor join."""
    monkeypatch.setattr(udp_module, "has_offload", lambda _: False)


def promise_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that are made from now on believe that their kernel cuts and joins."""
    monkeypatch.setattr(udp_module, "has_offload", lambda _: True)


def send(udp: UdpSocket, address: Address, datagrams: Sequence[bytes]) -> int:
    """Offer datagrams one by one; return how many of them went."""
    return offer(udp, deque(Datagrams.of(address, datagram) for datagram in datagrams))


def offer(udp: UdpSocket, rows: deque[Datagrams]) -> int:
    number = sum(row.number for row in rows)
    assert udp.send(rows) == (not rows)
    return number - sum(row.number for row in rows)


def joined(address: Address, datagrams: Sequence[bytes], most: int) -> deque[Datagrams]:
    """Rows of at most so many datagrams of one size."""
    rows: deque[Datagrams] = deque()
    for datagram in datagrams:
        last = rows[-1] if rows else Datagrams(address, b"", 0)
        if datagram and last.size == len(datagram) and last.number < most:
            rows[-1] = Datagrams(address, last.data + datagram, last.size)
        else:
            rows.append(Datagrams.of(address, datagram))
    return rows


async def received(udp: UdpSocket, count: int) -> list[bytes]:
    datagrams: list[bytes] = []
    with trio.fail_after(5):
        while len(datagrams) < count:
            await udp.wait_readable()
            datagrams += [it for row in udp.receive_batch(100) for it in row.datagrams]
    return datagrams


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_datagrams_arrive_with_the_address_of_their_sender(host):
    with UdpSocket(host, 0) as left, UdpSocket(host, 0) as right:
        assert send(left, right.address, [b"hello"]) == 1
        with trio.fail_after(5):
            await right.wait_readable()
        assert list(right.receive_batch(10)) == [Datagrams(left.address, b"hello", 5)]
        assert (left.counters.sent, right.counters.received) == (1, 1)


async def test_a_batch_is_bounded():
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        for number in range(5):
            send(left, right.address, [bytes([number])])
        with trio.fail_after(5):
            await right.wait_readable()
        assert len(list(right.receive_batch(2))) == 2
        assert await received(right, 3) == [b"\x02", b"\x03", b"\x04"]


SIZES = [[1200] * 200, [1200] * 10 + [7], [5, 1200, 1200, 1, 3, 9000, 9000], [60_000] * 3, [0]]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
async def test_many_datagrams_arrive_as_they_were(monkeypatch, host, offload, sizes):
    """Whatever their sizes, and whether or not the kernel cuts and joins them."""
    if not offload:
        forbid_offload(monkeypatch)
    with UdpSocket(host, 0) as left, UdpSocket(host, 0) as right:
        sent = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        assert send(left, right.address, sent) == len(sent)
        assert await received(right, len(sent)) == sent
        assert (left.counters.sent, right.counters.received) == (len(sent), len(sent))
        assert left.counters.send_calls <= len(sent)


@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("most", [2, 5, 54])
@pytest.mark.parametrize("sizes", SIZES[:3])
async def test_rows_arrive_as_their_datagrams(monkeypatch, sizes, most, offload):
    if not offload:
        forbid_offload(monkeypatch)
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        sent = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        assert offer(left, joined(right.address, sent, most)) == len(sent)
        assert await received(right, len(sent)) == sent
        assert left.counters.sent == len(sent)


async def test_with_offload_many_share_a_call():
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        send(left, right.address, [bytes(1000)] * 64)
        assert left.counters.send_calls == (1 if OFFLOAD else 64)
        assert len(await received(right, 64)) == 64


async def test_what_the_kernel_joined_comes_as_one_row():
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        sent = [bytes([number]) * 1000 for number in range(30)] + [b"end"]
        send(left, right.address, sent)
        with trio.fail_after(5):
            await right.wait_readable()
        rows = list(right.receive_batch(100))
        joined = [(left.address, 1000, 31)]
        # Where the kernel neither cuts nor joins, each comes alone.
        alone = [(left.address, len(datagram), 1) for datagram in sent]
        expected = joined if OFFLOAD else alone
        assert [(row.address, row.size, row.number) for row in rows] == expected
        assert [datagram for row in rows for datagram in row.datagrams] == sent
        assert (right.counters.received, right.counters.receive_calls) == (31, len(expected))


async def test_an_empty_datagram_is_a_datagram():
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        send(left, right.address, [b""])
        with trio.fail_after(5):
            await right.wait_readable()
        (row,) = right.receive_batch(10)
        assert (row.number, list(row.datagrams)) == (1, [b""])
        assert right.counters.received == 1


class Refusing(socket.socket):
    """One whose device cannot cut, or which has no room, as often as asked."""

    errors: list[OSError | None]
    calls = 0

    def sendmsg(self, *args: Any) -> int:
        self.calls += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return super().sendmsg(*args)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    """What the next ``UdpSocket`` sends by, for tests to say what it refuses."""
    bound = bind("127.0.0.1", 0, is_shared=False)
    refusing = Refusing(fileno=bound.detach())
    refusing.setblocking(False)
    refusing.errors = []
    sockets = [refusing]

    def bind_next(*args: Any, **options: Any) -> socket.socket:
        return sockets.pop() if sockets else bind(*args, **options)

    monkeypatch.setattr(udp_module, "bind", bind_next)
    return refusing


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL])
async def test_a_path_that_cannot_be_segmented_for_gets_them_one_by_one(
    number, refusing, monkeypatch
):
    promise_offload(monkeypatch)
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [OSError(number, "no")]
        sent = [bytes([number]) * 10 for number in range(5)]
        assert send(left, right.address, sent) == 5
        assert await received(right, 5) == sent
        assert refusing.calls == 1 + 5
        assert send(left, right.address, sent) == 5
        assert refusing.calls == 1 + 5 + 5, "the kernel is not asked to cut again"


async def test_news_of_an_earlier_datagram_changes_no_ways(refusing):
    """Nobody listened there once; that says nothing about how datagrams may be sent."""
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [ConnectionRefusedError(errno.ECONNREFUSED, "no")]
        assert send(left, right.address, [b"a", b"b"]) == 2
        assert refusing.calls == 1 + 2
        assert send(left, right.address, [b"c", b"d"]) == 2
        assert refusing.calls == 1 + 2 + 1, "the kernel still cuts"
        assert await received(right, 4) == [b"a", b"b", b"c", b"d"]


async def test_what_found_no_room_one_by_one_is_not_taken_for_sent(refusing, monkeypatch):
    promise_offload(monkeypatch)
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [OSError(errno.EIO, "no"), None, BlockingIOError()]
        assert send(left, right.address, [b"a", b"b", b"c"]) == 1
        assert await received(right, 1) == [b"a"]


async def test_no_room_is_told_and_the_rest_offered_again(refusing, monkeypatch):
    forbid_offload(monkeypatch)
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [None, None, BlockingIOError()]
        sent = [bytes([number]) for number in range(5)]
        assert send(left, right.address, sent) == 2
        assert send(left, right.address, sent[2:]) == 3
        assert await received(right, 5) == sent


@pytest.mark.parametrize("offload", [True, False])
async def test_rows_that_find_no_room_are_offered_again_and_come_once(
    offload, refusing, monkeypatch
):
    if not offload:
        forbid_offload(monkeypatch)
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [None, BlockingIOError()]
        sent = [bytes([number]) * 1000 for number in range(130)]
        rows = joined(right.address, sent, 60)
        went = offer(left, rows)
        assert 0 < went < 130
        assert offer(left, rows) == 130 - went
        assert await received(right, 130) == sent


async def test_news_of_an_earlier_datagram_loses_none_of_a_row_that_needs_many_calls(refusing):
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        refusing.errors = [None, ConnectionRefusedError(errno.ECONNREFUSED, "no")]
        sent = [bytes([number]) * 40_000 for number in range(4)]
        assert offer(left, joined(right.address, sent, 4)) == 4
        assert await received(right, 4) == sent
        assert refusing.calls == 5


async def test_what_is_too_large_is_named_and_the_rest_goes():
    """The kernel says so of all that are in the call."""
    with UdpSocket("127.0.0.1", 0) as left, UdpSocket("127.0.0.1", 0) as right:
        sent = [b"a" * 100, b"b" * 100, b"x" * 70_000, b"c"]
        assert send(left, right.address, sent) == 4
        assert await received(right, 3) == [b"a" * 100, b"b" * 100, b"c"]
        assert list(left.too_large) == [(right.address, 70_000)]
        assert left.counters.send_errors == 1


async def test_a_port_that_nobody_listens_on_is_not_an_error():
    with UdpSocket("127.0.0.1", 0) as gone:
        nobody = gone.address
    with UdpSocket("127.0.0.1", 0) as left:
        for _ in range(3):
            assert send(left, nobody, [b"?"]) == 1
            assert list(left.receive_batch(10)) == []


async def test_a_datagram_that_no_network_carries_is_lost_not_raised():
    with UdpSocket("127.0.0.1", 0) as left:
        assert send(left, left.address, [b"x" * 70_000]) == 1
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


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "typo..invalid"])
async def test_an_address_that_cannot_be_bound_is_named(host):
    with pytest.raises(UdpAddressError, match=host):
        UdpSocket(host, 0)


@pytest.mark.parametrize("port", [-1, 65_536, 70_000])
async def test_a_port_that_does_not_exist_is_named_and_not_taken_for_another(port):
    with pytest.raises(UdpAddressError, match=f"127.0.0.1:{port}: allowed are ports 0 to 65535"):
        UdpSocket("127.0.0.1", port)


async def test_a_socket_that_the_system_refuses_names_the_address(monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", refuse)
        with pytest.raises(UdpAddressError, match=r"127\.0\.0\.1:0: Too many open files"):
            UdpSocket("127.0.0.1", 0)


async def test_a_port_in_use_is_named():
    with UdpSocket("127.0.0.1", 0) as first:
        port = first.address[1]
        with pytest.raises(UdpAddressError, match=f"127.0.0.1:{port}: Address already in use"):
            UdpSocket("127.0.0.1", port)


async def test_an_address_that_may_not_be_sent_to_is_a_datagram_lost() -> None:
    with UdpSocket("127.0.0.1", 0) as udp:
        assert send(udp, ("255.255.255.255", 9), [b"to everybody"]) == 1
        assert udp.counters.send_errors == 1
