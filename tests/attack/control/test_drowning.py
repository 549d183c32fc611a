"""One connection that says as much as it can: the others are heard as if it were not there."""

import trio

from sphtp import Config, ServerAddress
from sphtp.config import ControlTimers
from sphtp.core.control.client_messages import Heartbeat
from sphtp.shell.client import open_client
from sphtp.shell.server import Server, open_server
from tests.deadline import within_20_seconds
from tests.shell.strangers import PUB, frame, greeted

pytestmark = within_20_seconds

EXPIRY = 1.0
TIMERS = ControlTimers(heartbeat=0.1, expiry=EXPIRY, announce_deadline=0.5, backoff=0.2)
STRANGER = Heartbeat(4711, 5, 0).encode()
"""What a client says of which the server knows nothing: each deserves an answer."""


async def flood(url: str, message: bytes) -> None:
    """Say the same for ever, as fast as it is taken."""
    run = frame(message) * 2000
    async with await greeted(url, PUB) as stream:
        while True:
            await stream.send_all(run)


async def count_for(seconds: float, server: Server, number: int) -> list[str]:
    """Return what a server tells of a client in so many seconds."""
    told: list[str] = []
    with trio.move_on_after(seconds), server.events() as events:
        async for event in events:
            record = getattr(event, "record", None)
            if number in (getattr(event, "id", None), getattr(record, "id", None)):
                told.append(type(event).__name__)
    return told


async def test_nobody_expires_for_the_noise_of_another() -> None:
    """What must hold: for longer than the expiry, a client is not suspected, and new ones come in.

    The bound: a turn of one connection is 16 messages, so that another one is heard after at most
    16 messages of each that floods, whatever they send.
    """
    bind = ServerAddress.parse("tcp://127.0.0.1:0")
    async with (
        open_server(bind, new_cluster=True, config=Config(timers=TIMERS)) as server,
        trio.open_nursery() as nursery,
    ):
        async with open_client([server.address], config=Config(timers=TIMERS)) as client:
            for message in (b"noise", STRANGER):
                nursery.start_soon(flood, server.address.sub, message)
            assert await count_for(1.2 * EXPIRY, server, client.id) == []
            began = trio.current_time()
            async with open_client([server.address], config=Config(timers=TIMERS)):
                assert trio.current_time() - began < EXPIRY
            nursery.cancel_scope.cancel()
        assert server.statistics().counters["malformed"] > 10_000
