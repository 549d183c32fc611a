"""The cluster's time over real sockets: one machine, so that the truth is known."""

import pytest
import trio
import trio.testing

from sphtp import Config, Server, open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.records import ServerAddress
from sphtp.shell.clock import Clock
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = ServerAddress.parse("tcp://127.0.0.1:0,0")


async def test_a_client_and_its_server_have_one_time_and_wake_at_it():
    async with (
        open_server(ANY, new_cluster=True, config=Config(timers=TIMERS)) as server,
        open_client([server.address], config=Config(timers=TIMERS)) as client,
    ):
        await client.clock.wait_synchronized()
        await client.clock.sleep_until(client.clock.now() + 1.0)
        latest = client.clock.now()
        # Each reading has to keep its own bound, on a busy machine too.
        for _ in range(50):
            await trio.sleep(0.02)
            # Between the two readings of the server is no time at which the client is wrong.
            early, (time, error), late = server.clock.now(), client.clock.read(), server.clock.now()
            assert early - error <= time <= late + error
            assert latest < time
            latest = time
        assert client.clock.error < 0.05
        assert client.clock.is_synchronized
        woken = dict[str, float]()

        async def wake(who, clock, at):
            await clock.sleep_until(at)
            woken[who] = server.clock.now()

        at = server.clock.now() + 0.2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wake, "client", client.clock, at)
            nursery.start_soon(wake, "server", server.clock, at)
        assert all(moment >= at - client.clock.error for moment in woken.values())
        await client.clock.sleep_until(at)


@pytest.mark.soak
async def test_a_client_and_its_server_agree_to_50_microseconds():
    """Run it alone: if others use the processor, an answer is late, and half of that is error."""
    async with (
        open_server(ANY, new_cluster=True, config=Config(timers=TIMERS)) as server,
        open_client([server.address], config=Config(timers=TIMERS)) as client,
    ):
        await client.clock.wait_synchronized()
        await client.clock.sleep_until(client.clock.now() + 1.0)
        differences = list[float]()
        while len(differences) < 50 or min(differences) >= 50e-6:
            await trio.sleep(0.02)
            early, (time, _), late = server.clock.now(), client.clock.read(), server.clock.now()
            differences.append(abs(time - (early + late) / 2))


class PausesSince(trio.abc.Instrument):
    """The times that the process slept although a clock was synchronized."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock

    def before_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0 and self._clock.is_synchronized


NOBODY = ServerAddress.parse("tcp://127.0.0.1:1,2")


async def test_whoever_waits_for_the_time_wakes_when_it_comes():
    config = Config(timers=TIMERS)
    async with (
        open_server(ANY, new_cluster=True, config=config) as first,
        open_server(ANY, join=[first.address], config=config) as server,
    ):
        assert not server.clock.is_synchronized
        trio.lowlevel.add_instrument(pauses := PausesSince(server.clock))
        await server.clock.wait_synchronized()
        trio.lowlevel.remove_instrument(pauses)
        assert server.clock.is_synchronized
        assert pauses.count == 0
    # A time that was there stays.
    await server.clock.wait_synchronized()


async def test_a_wait_for_a_time_that_never_comes_ends_with_its_scope_and_with_the_server():
    ended = trio.Event()

    async def wait(server: Server) -> None:
        with pytest.raises(trio.ClosedResourceError, match="this server was closed"):
            await server.clock.sleep_until(1.0)
        ended.set()

    async with trio.open_nursery() as nursery:
        async with open_server(ANY, join=[NOBODY], config=Config(timers=TIMERS)) as server:
            with trio.move_on_after(0.1) as scope:
                await server.clock.wait_synchronized()
            assert scope.cancelled_caught
            nursery.start_soon(wait, server)
            await trio.testing.wait_all_tasks_blocked()
            assert not ended.is_set()
        await ended.wait()
    with pytest.raises(trio.ClosedResourceError):
        await server.clock.wait_synchronized()
