"""How large datagrams may be that never leave this machine."""

import socket

import pytest

from sphtp.shell.udp import largest_datagram
from tests.cases import each


def test_the_loopback_interface_takes_what_it_says() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        one.bind(("127.0.0.1", 0))
        size = largest_datagram(one.getsockname())
        assert size > 1400
        other.sendto(bytes(size), one.getsockname())
        assert len(one.recv(65_536)) == size


@each("host", ["0.0.0.0", "192.0.2.1", "::", "2001:db8::1", "fe80::1%eth0"])
def test_where_others_can_be_reached_nothing_is_said(host: str) -> None:
    assert largest_datagram((host, 4711)) == 0


def test_where_the_kernel_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no such option")

    monkeypatch.setattr("socket.socket.connect", refuse)
    assert largest_datagram(("127.0.0.1", 4711)) == 0
