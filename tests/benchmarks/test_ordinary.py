"""One message per call: what is compared, and real processes on loopback."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from sphtp_benchmarks.figures import Figures, Sheet
from sphtp_benchmarks.meters import LAST, MessageSource, MessageTally
from sphtp_benchmarks.ordinary.catalog import CASES, ORDINARY, SYSTEMS
from sphtp_benchmarks.pair import Measurement, measure
from tests.deadline import within_20_seconds

SHORT: dict[str, Any] = {"seconds": 0.05, "warm_up": 0.0, "catalog": ORDINARY.name}


def test_what_is_promised_is_among_the_ratios() -> None:
    sheet = Sheet(ORDINARY)
    sheet.note("ordinary", "sphtp", Figures(messages_per_s=900.0))
    sheet.note("ordinary", "tcp", Figures(messages_per_s=300.0))
    sheet.note("tasks", "sphtp", Figures(messages_per_s=450.0))
    ratios = sheet.ratios()
    assert (ratios["ordinary/tcp"], ratios["tasks/ordinary"]) == (3.0, 0.5)
    assert ratios["ordinary/zmq_asyncio"] is ratios["nowait/tcp"] is None


def test_messages_come_one_by_one_without_the_last_of_them() -> None:
    source = MessageSource(size=4, seconds=0.0001)
    messages = list(source.messages())
    assert set(messages) <= {bytes(4)}
    assert source.last == bytes([LAST, 0, 0, 0])


async def test_an_iteration_is_counted_up_to_the_last_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def messages() -> AsyncGenerator[bytes, None]:
        for number in range(1000):
            yield bytes([number == 700, 0])

    async with aclosing(messages()) as numbered:
        await MessageTally(2, 0.0).take_all(numbered)
    assert '"received": 701' in capsys.readouterr().out


@within_20_seconds
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("case", CASES)
async def test_every_message_of_ours_arrives(case: str) -> None:
    figures = await measure(Measurement(case, "sphtp", **SHORT))
    assert (figures.messages_per_s or 0) > 100


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_every_message_of_tcp_arrives() -> None:
    assert "tcp" in SYSTEMS
    figures = await measure(Measurement("ordinary", "tcp", **SHORT))
    assert (figures.messages_per_s or 0) > 100
