"""Which address to bind and which to tell, while names of servers come late or never."""

import socket
from collections.abc import Sequence
from typing import Any

import pytest
import trio

import sphtp
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell import addresses
from sphtp.shell.addresses import (
    AddressDiscovery,
    local_address_towards,
    parse_http_address,
    resolve,
)
from sphtp.shell.probe import ServerWait


class Names(trio.abc.HostnameResolver):
    """Knows ``late`` from the given second on, and nobody else."""

    def __init__(self, known_from: float, takes: float = 0) -> None:
        self._takes = takes
        self._known_from = trio.current_time() + known_from

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        await trio.sleep(self._takes)
        if host != b"late" or trio.current_time() < self._known_from:
            raise trio.socket.gaierror(trio.socket.EAI_NONAME, "never heard of it")
        return [(trio.socket.AF_INET, trio.socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise NotImplementedError


def servers(*hosts: str) -> list[ServerAddress]:
    return [ServerAddress.parse(f"tcp://{host}:8764") for host in hosts]


def facing(monkeypatch: pytest.MonkeyPatch, hosts: dict[str, str]) -> Sequence[ServerAddress]:
    """Let servers be faced by the given addresses of this machine."""

    async def towards(host: str, _: int) -> str:
        await trio.lowlevel.checkpoint()
        return hosts[host]

    monkeypatch.setattr(addresses, "local_address_towards", towards)
    return servers(*hosts)


async def test_a_name_that_comes_late_is_waited_for(autojump_clock: trio.abc.Clock) -> None:
    trio.socket.set_custom_hostname_resolver(Names(known_from=3))
    discovery = AddressDiscovery(servers("late"), ServerWait(5, wait=5))
    assert await discovery.where_to_bind() == "127.0.0.1"
    assert await discovery.candidates_of(("0.0.0.0", 7)) == [Candidate("127.0.0.1", 7)]


async def test_one_known_name_is_enough(autojump_clock: trio.abc.Clock) -> None:
    trio.socket.set_custom_hostname_resolver(Names(known_from=0))
    start = trio.current_time()
    assert (
        await AddressDiscovery(servers("never", "late"), ServerWait(5)).where_to_bind()
        == "127.0.0.1"
    )
    assert trio.current_time() == start


async def test_names_that_never_come_are_named(autojump_clock: trio.abc.Clock) -> None:
    trio.socket.set_custom_hostname_resolver(Names(known_from=100))
    start = trio.current_time()
    complaint = "within 5 s: no way to late: .*; no way to never: never heard of it"
    with pytest.raises(UnreachableError, match=complaint):
        async with sphtp.open_client(
            ["tcp://late:8764", "tcp://never:8764"],
            config=sphtp.Config(timers=sphtp.config.ControlTimers(start_timeout=5)),
        ):
            raise AssertionError("nobody knows them")
    assert start + 5 <= trio.current_time() < start + 6


async def test_names_that_nobody_waits_for_are_told_within_a_second(
    autojump_clock: trio.abc.Clock,
) -> None:
    trio.socket.set_custom_hostname_resolver(Names(known_from=100))
    start = trio.current_time()
    with pytest.raises(UnreachableError, match="not registered: no way to never: never heard"):
        await AddressDiscovery(servers("never"), ServerWait(30)).where_to_bind()
    assert trio.current_time() < start + 1


async def test_a_look_that_hangs_is_warned_of_within_a_second_and_given_up(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    trio.socket.set_custom_hostname_resolver(Names(known_from=0, takes=6))
    with pytest.raises(UnreachableError, match="within 5 s: late still being looked up"):
        await AddressDiscovery(servers("late"), ServerWait(5)).where_to_bind()
    [warning] = caplog.messages
    assert warning == "not registered yet: late still being looked up; waiting for up to 4.5 s"


@pytest.mark.parametrize(
    ("hosts", "bound"),
    [
        ({"a": "10.0.0.1", "b": "10.0.0.1"}, "10.0.0.1"),
        ({"a": "10.0.0.1", "b": "10.1.0.1"}, "0.0.0.0"),
        ({"a": "fd00::1", "b": "fd01::1"}, "::"),
        ({"a": "10.0.0.1", "b": "fd00::1"}, "0.0.0.0"),
        ({"a": "127.0.0.1", "b": "::1"}, "127.0.0.1"),
    ],
)
async def test_what_faces_the_servers_is_bound(
    monkeypatch: pytest.MonkeyPatch, hosts: dict[str, str], bound: str
) -> None:
    assert (
        await AddressDiscovery(facing(monkeypatch, hosts), ServerWait(5)).where_to_bind() == bound
    )


@pytest.mark.parametrize(
    ("bound", "told"),
    [("0.0.0.0", ["10.0.0.1"]), ("::", ["fd00::1"]), ("127.0.0.1", ["127.0.0.1"])],
)
async def test_only_addresses_of_the_socket_s_own_family_are_told(
    monkeypatch: pytest.MonkeyPatch, bound: str, told: list[str]
) -> None:
    hosts = {"a": "10.0.0.1", "b": "fd00::1", "c": "127.0.0.1", "d": "::1"}
    discovery = AddressDiscovery(facing(monkeypatch, hosts), ServerWait(5))
    assert [each.host for each in await discovery.candidates_of((bound, 7))] == told


async def test_a_socket_that_faces_nobody_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = AddressDiscovery(facing(monkeypatch, {"a": "10.0.0.1"}), ServerWait(5))
    with pytest.raises(SettingsError, match="host is ::, and no IPv6 address faces"):
        await discovery.candidates_of(("::", 7))


@pytest.mark.parametrize("port", ["65536", "-1", "x", "", "9" * 5000])
def test_an_address_for_http_without_a_port_that_exists_is_refused(port: str) -> None:
    with pytest.raises(SettingsError, match="is not"):
        parse_http_address(f"localhost:{port}")


async def test_a_port_that_does_not_exist_is_not_taken_for_another() -> None:
    with pytest.raises(SettingsError, match="port is 70000; allowed is 0 to 65535"):
        await resolve([("127.0.0.1", 70_000)], socket.AF_INET)


async def test_loopback_is_faced_from_loopback():
    assert await local_address_towards("127.0.0.1", 9) == "127.0.0.1"


async def test_no_way_to_an_unknown_name_is_an_error():
    with pytest.raises(UnreachableError, match="no way to no such host"):
        await local_address_towards("no such host", 9)
