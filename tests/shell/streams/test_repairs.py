"""Whose sockets repairs go to."""

import pytest
import trio

from sphtp import Config
from sphtp.core.channel.security import SEALED, Security
from sphtp.shell.impairment import Impairment
from sphtp.shell.source import Source
from sphtp.shell.subscription import Subscription
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds

TOPIC = "positions"
MESSAGES = range(3000)


async def send_all(source: Source) -> None:
    for start in range(0, len(MESSAGES), 100):
        await source.send_many(MESSAGES[start : start + 100])
        await trio.lowlevel.checkpoint()
    await source.aclose()


async def read_all(stream: Subscription) -> list[object]:
    return [item async for item in stream]


@pytest.mark.parametrize("security", [SEALED, None], ids=["sealed", "clear"])
async def test_by_unicast_they_go_to_whoever_asked(security: Security | None) -> None:
    bad = Impairment(loss=0.2)
    async with (
        open_node(config=Config(security=security)) as here,
        open_node(config=Config(security=security, seed=1, impairment=bad)) as left,
        open_node(config=Config(security=security)) as right,
        here.open_source(TOPIC) as source,
        left.subscribe(*here.address, topic=TOPIC) as lossy,
        right.subscribe(*here.address, topic=TOPIC) as well,
    ):
        await send_all(source)
        assert await read_all(lossy) == await read_all(well) == list(MESSAGES)
        asked = [stream.statistics().transport.naks_sent for stream in (lossy, well)]
        assert asked[0] > 0
        assert source.statistics().repairs_sent >= lossy.statistics().transport.recovered > 0
        assert well.statistics().transport.duplicates <= asked[1], "none of the other's"
