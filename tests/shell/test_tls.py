"""TLS under the bus, on real sockets, with certificates made here."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.records import ServerAddress
from sphtp.errors import SettingsError, UnreachableError
from sphtp.security import Tls
from sphtp.shell import bus_dialing
from sphtp.shell.bus_dialing import PubSocket
from sphtp.shell.bus_listening import ListeningSubSocket
from sphtp.shell.lifetime import running
from tests.certificates import Authority
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
HOST = "127.0.0.1"
ANY = ServerAddress.parse(f"tls+tcp://{HOST}:0,0")


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Authority(folder)


@asynccontextmanager
async def server(tls, *join):
    async with open_server(
        ANY,
        join=join,
        new_cluster=not join,
        config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(tls=tls)),
    ) as opened:
        yield opened


async def is_heard(opened, tls) -> bool:
    try:
        async with open_client(
            [opened.address],
            config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(tls=tls)),
        ):
            return True
    except UnreachableError as error:
        if "certificate" in str(error):
            return False
        raise


async def test_the_certificate_of_the_server_is_checked(authority, stranger):
    cert, key = authority.issue(HOST)
    async with server(Tls(cert=cert, key=key)) as opened:
        assert str(opened.address).startswith("tls+tcp://127.0.0.1:")
        assert await is_heard(opened, Tls(ca=authority.ca))
        assert not await is_heard(opened, Tls(ca=stranger.ca))


async def test_a_certificate_for_another_host_is_refused(authority):
    cert, key = authority.issue("example.org")
    async with server(Tls(cert=cert, key=key)) as opened:
        assert not await is_heard(opened, Tls(ca=authority.ca))


async def test_a_server_may_want_to_see_certificates_too(authority, stranger):
    cert, key = authority.issue(HOST)
    foreign_cert, foreign_key = stranger.issue(HOST)
    tls = Tls(authority.ca, cert, key, mutual=True)
    async with server(tls) as opened:
        assert await is_heard(opened, Tls(authority.ca, cert, key))
        assert not await is_heard(opened, Tls(authority.ca))
        assert not await is_heard(opened, Tls(authority.ca, foreign_cert, foreign_key))


async def test_servers_find_each_other(authority):
    cert, key = authority.issue(HOST)
    tls = Tls(authority.ca, cert, key, mutual=True)
    async with server(tls) as first, server(tls, first.address) as second:
        events = first.events()
        while len(first.view.active) < 2:
            await anext(events)
        async with open_client(
            [second.address],
            config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(tls=tls)),
        ) as client:
            await until(lambda: set(client.servers) == {first.id, second.id})


async def test_status_is_asked_for_over_tls(authority):
    async with server(Tls(None, *authority.issue(HOST))) as opened:
        tls = Tls(authority.ca)
        assert (
            await sphtp.observe.fetch_status(
                opened.address, config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(tls=tls))
            )
        )["id"] == opened.id


PLAIN = "tcp://127.0.0.1:8764"
SECURE = "tls+tcp://127.0.0.1:8764"


async def test_addresses_and_files_have_to_agree(authority):
    cert, key = authority.issue(HOST)
    cases = [
        (SECURE, None, "needs a TLS authority"),
        (SECURE, Tls(None, cert, key), "needs a TLS authority"),
        (PLAIN, Tls(authority.ca), "is no tls"),
    ]
    for address, tls, complaint in cases:
        with pytest.raises(SettingsError, match=complaint):
            async with open_client(
                [address], config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(tls=tls))
            ):
                pass
        with pytest.raises(SettingsError, match=complaint):
            await sphtp.observe.fetch_status(
                ServerAddress.parse(address),
                config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(tls=tls)),
            )


async def test_a_server_needs_a_certificate_to_listen(authority):
    for tls, complaint in (
        (None, "none are given"),
        (Tls(authority.ca), "needs a TLS certificate"),
    ):
        with pytest.raises(SettingsError, match=complaint):
            async with server(tls):
                pass
    plain = ServerAddress.parse("tcp://127.0.0.1:0,0")
    with pytest.raises(SettingsError, match="no tls"):
        async with open_server(
            plain,
            config=sphtp.Config(
                cluster=sphtp.security.ClusterSecurity(tls=Tls(None, *authority.issue(HOST)))
            ),
        ):
            pass


@pytest.mark.parametrize("which", ["ca", "cert", "key"])
async def test_files_that_cannot_be_used_are_named(authority, tmp_path, which):
    cert, key = authority.issue(HOST)
    good = {"ca": authority.ca, "cert": cert, "key": key}
    empty, letters, gone = tmp_path / "empty", tmp_path / "letters", tmp_path / "gone"
    empty.write_text("")
    letters.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for bad in (empty, letters, gone):
        tls = Tls(**{**good, which: bad}, mutual=True)
        with pytest.raises(SettingsError, match=str(bad)):
            async with server(tls):
                pass


async def test_one_of_a_pair_is_refused():
    with pytest.raises(SettingsError, match="only one"):
        Tls(cert=Path("cert"))
    with pytest.raises(SettingsError, match="mutual"):
        Tls(cert=Path("cert"), key=Path("key"), mutual=True)


async def test_an_address_without_tls_leads_nobody_around_it(authority, monkeypatch):
    """A member that says that it is to be reached without TLS is not dialled."""
    monkeypatch.setattr("sphtp.shell.server.require_protection", lambda *_: None)
    cert, key = authority.issue(HOST)
    tls = Tls(authority.ca, cert, key)
    async with (
        open_server(
            ANY,
            advertise=ServerAddress.parse("tcp://127.0.0.1:9"),
            new_cluster=True,
            config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(tls=tls)),
        ) as opened,
        open_client(
            [opened.address],
            config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(tls=tls)),
        ) as client,
    ):
        await until(lambda: bool(client.statistics().undialable))


async def test_a_server_with_certificates_tells_nobody_to_come_in_the_clear(authority):
    cert, key = authority.issue(HOST)
    plain = ServerAddress.parse(f"tcp://{HOST}:8764")
    with pytest.raises(SettingsError, match="advertised"):
        async with open_server(
            ANY,
            advertise=plain,
            config=sphtp.Config(
                cluster=sphtp.security.ClusterSecurity(tls=Tls(authority.ca, cert, key))
            ),
        ):
            pytest.fail("it started")


async def test_a_key_that_others_may_read_is_refused(authority):
    cert, key = authority.issue(HOST)
    key.chmod(0o640)
    with pytest.raises(SettingsError, match=r"0640.*chmod 600"):
        async with server(Tls(cert=cert, key=key)):
            pytest.fail("it started")


async def test_an_address_whose_handshake_stalls_is_dialled_anew(authority, monkeypatch):
    """NNG can wait for ever if a server breaks off the handshake, as a full one does."""
    monkeypatch.setattr(bus_dialing, "STALLED", 0.2)
    monkeypatch.setattr(bus_dialing, "LOOK_INTERVAL", 0.02)
    (silent,) = await trio.open_tcp_listeners(0, host=HOST)
    number = silent.socket.getsockname()[1]
    async with silent:
        with PubSocket(tls=Tls(ca=authority.ca)) as publisher:
            publisher.dial(f"tls+tcp://{HOST}:{number}")
            async with running(publisher.redial_stalled):
                # NNG itself tries again after 10 s with a server that says nothing.
                with trio.fail_after(5):
                    first, second = await silent.accept(), await silent.accept()
    await first.aclose()
    await second.aclose()


async def test_an_address_that_is_connected_is_not_dialled_anew(authority, monkeypatch):
    monkeypatch.setattr(bus_dialing, "STALLED", 0.1)
    monkeypatch.setattr(bus_dialing, "LOOK_INTERVAL", 0.01)
    cert, key = authority.issue(HOST)
    with ListeningSubSocket(tls=Tls(cert=cert, key=key)) as subscriber:
        subscriber.subscribe(b"")
        url = subscriber.listen(f"tls+tcp://{HOST}:0")
        with PubSocket(tls=Tls(ca=authority.ca)) as publisher:
            publisher.dial(url)
            async with running(subscriber.receive_batch), running(publisher.redial_stalled):
                await until(lambda: publisher.connections == 1)
                await trio.sleep(0.5)
            assert (publisher.connections, publisher.ended) == (1, 0)
