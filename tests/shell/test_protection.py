"""A server that others can reach wants to be protected, and lets in whom it is told to."""

import pytest
import trio

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers, ServerLimits
from sphtp.core.control.client_messages import Leave
from sphtp.core.control.counters import Count
from sphtp.core.control.records import ServerAddress
from sphtp.errors import RefusedError, SettingsError
from sphtp.shell.addresses import is_loopback
from sphtp.shell.bus_dialing import PubSocket
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = ServerAddress.parse("tcp://127.0.0.1:0,0")
EVERYWHERE = ServerAddress.parse("tcp://0.0.0.0:0,0")


@pytest.mark.parametrize(
    "bind",
    ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://example.org:0", "tcp://127.0.0.1:0,tcp://0.0.0.0:0"],
)
async def test_more_than_loopback_is_refused_without_protection(bind):
    with pytest.raises(SettingsError, match="nothing protects it"):
        async with open_server(ServerAddress.parse(bind)):
            pass


@pytest.mark.parametrize("means", [{"insecure": True}, {"secret": bytes(32)}])
async def test_protected_or_told_to_it_listens(means):
    config = sphtp.Config(cluster=sphtp.security.ClusterSecurity(**means))
    async with open_server(EVERYWHERE, advertise=ANY_DIALABLE, config=config) as opened:
        assert opened.address.pub.startswith("tcp://0.0.0.0:")


ANY_DIALABLE = ServerAddress.parse("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
async def test_loopback_is_what_nobody_else_reaches(host, expected):
    assert is_loopback(host) is expected


async def test_only_those_on_the_list_come_in():
    ours, theirs = (sphtp.Identity(bytes([n]) * 32) for n in (1, 2))
    async with open_server(
        ANY,
        new_cluster=True,
        admit=sphtp.security.allow_only({ours.public}),
        config=sphtp.Config(timers=TIMERS),
    ) as opened:
        async with open_client(
            [opened.address],
            config=sphtp.Config(timers=TIMERS, security=sphtp.security.Security(identity=ours)),
        ) as client:
            assert opened.clients[client.id].key == ours.public
        with pytest.raises(RefusedError, match="denied") as caught:
            async with open_client(
                [opened.address],
                config=sphtp.Config(
                    timers=TIMERS, security=sphtp.security.Security(identity=theirs)
                ),
            ):
                pass
        assert caught.value.reason == "denied"


async def test_without_a_secret_an_id_belongs_to_its_connection():
    async with (
        open_server(ANY, new_cluster=True, config=sphtp.Config(timers=TIMERS)) as opened,
        open_client([opened.address], config=sphtp.Config(timers=TIMERS)) as client,
    ):
        forged = Leave(client.id, opened.clients[client.id].nonce).encode()
        with PubSocket() as stranger:
            stranger.dial(opened.address.sub)
            while opened.statistics().counters.get(Count.FOREIGN_PIPE, 0) < 3:
                stranger.send(forged)
                await trio.lowlevel.checkpoint()
        assert client.id in opened.clients


async def test_limits_show_in_the_statistics_by_name():
    limits = ServerLimits(announces_per_second=1)
    async with (
        open_server(
            ANY, new_cluster=True, config=sphtp.Config(timers=TIMERS, server_limits=limits)
        ) as opened,
        open_client([opened.address], config=sphtp.Config(timers=TIMERS)),
        open_client([opened.address], config=sphtp.Config(timers=TIMERS)),
    ):
        assert opened.statistics().counters["over_announces_per_second"] > 0


async def test_an_error_of_admit_denies_one_client_and_ends_nothing(caplog):
    first = []

    def fails_for_the_first(peer):
        # On a busy machine its announcement may come a second time, after the answer has left.
        first.append(peer.nonce)
        if peer.nonce == first[0]:
            raise KeyError("database")
        return True

    async with open_server(
        ANY, new_cluster=True, admit=fails_for_the_first, config=sphtp.Config(timers=TIMERS)
    ) as opened:
        with pytest.raises(RefusedError, match="denied"):
            async with open_client([opened.address], config=sphtp.Config(timers=TIMERS)):
                pass
        assert "KeyError: 'database'" in caplog.text
        assert opened.statistics().counters["denied"] >= 1
        async with open_client([opened.address], config=sphtp.Config(timers=TIMERS)):
            assert len(opened.clients) == 1
