"""How the program of a user leaves: at Ctrl-C by itself, at SIGTERM as the how-to has it."""

import signal
from contextlib import aclosing

import pytest
import trio

from sphtp import ServerAddress, open_client, open_server
from sphtp.events import PeerLeft, Reason
from tests.deadline import within_20_seconds
from tests.house.pages import ROOT, sections
from tests.interpreters import ForkedProcess

pytestmark = within_20_seconds

PAGE = ROOT / "docs" / "how-to" / "write-a-simulation-client.md"
ANY = ServerAddress.parse("tcp://127.0.0.1:0")


def program() -> str:
    """Return the one of the page, waiting for a signal of somebody else."""
    [section] = [each for each in sections(PAGE) if each.title == "Leave on signals"]
    [block] = section.blocks("python")
    lines = block.text.splitlines()
    return "\n".join(line for line in lines if "raise_signal" not in line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_that_is_asked_to_end_says_good_bye(number: signal.Signals) -> None:
    async with open_server(ANY, new_cluster=True) as server:
        text = program().replace("tcp://127.0.0.1:8764", str(server.address))
        with server.events() as events:
            async with aclosing(ForkedProcess(text)) as process:
                assert (await process.stdout.receive_some()).startswith(b"registered")
                process.send_signal(number)
                assert await process.wait() == (1 if number == signal.SIGINT else 0)
            async for event in events:
                if isinstance(event, PeerLeft):
                    assert event.reason is Reason.LEFT
                    break


async def test_a_block_that_is_cancelled_says_good_bye() -> None:
    async with open_server(ANY, new_cluster=True) as server:
        with server.events() as events, trio.CancelScope() as scope:
            async with open_client([server.address]):
                scope.cancel()
                await trio.sleep_forever()
        with server.events() as events:
            while server.clients:
                event = await anext(events)
                assert not isinstance(event, PeerLeft) or event.reason is Reason.LEFT
