"""Workers in a group, with the server in the first one: `await group.exchange(array)`."""

from contextlib import AsyncExitStack

import trio

import sphtp
from sphtp.config import ChannelSettings
from sphtp.core.control.records import ServerAddress
from sphtp_benchmarks.lockstep.catalog import GROUP_VIEWS
from sphtp_benchmarks.lockstep.steps import Steps, meet
from sphtp_benchmarks.process_task import ProcessTask

HOST = "127.0.0.1"
_PORT = 1 << 16


def work(part: ProcessTask) -> None:
    """Join the group, and keep step."""
    trio.run(_work, part)


async def _work(part: ProcessTask) -> None:
    async with AsyncExitStack() as stack:
        awaited = part.workers - part.number - 1
        if part.number == 0:
            server = await stack.enter_async_context(
                sphtp.open_server(ServerAddress.parse(f"tcp://{HOST}:0,0"), new_cluster=True)
            )
            address = server.address
            await trio.to_thread.run_sync(meet, part, [_packed(address)] * awaited)
        else:
            ports = await trio.to_thread.run_sync(meet, part, [0] * awaited)
            pub, sub = divmod(ports[0], _PORT)
            address = ServerAddress.parse(f"tcp://{HOST}:{pub},{sub}")
        channel = ChannelSettings(array_views=part.system == GROUP_VIEWS)
        config = sphtp.Config(channel=channel)
        client = await stack.enter_async_context(sphtp.open_client(address, config=config))
        group = await stack.enter_async_context(client.join("workers", size=part.workers))
        steps, rank = Steps(part), group.rank
        for array in steps:
            for number, other in enumerate(await group.exchange(array)):
                if number != rank:
                    steps.take(other)
        steps.done()
        await trio.sleep_forever()


def _packed(address: ServerAddress) -> int:
    """Return both ports of a server as one number."""
    pub, sub = (int(url.rpartition(":")[2]) for url in (address.pub, address.sub))
    return pub * _PORT + sub
