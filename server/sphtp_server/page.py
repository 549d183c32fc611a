"""The page of a program, and the client that looks at the cluster for it.

A page knows what the servers and clients of its own process know. To show the whole cluster it
asks the other clients, as a client that does nothing else. That one begins when the page does, and
begins anew for as long as the page is there: no failure of its own ends the program.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

import sphtp
from sphtp import Config, ServerAddress
from sphtp.errors import SphtpError
from sphtp.shell.status import OBSERVER_DATA

if TYPE_CHECKING:
    from sphtp.web import Web

PAUSE: Final = 10.0
"""Seconds from a failure to the next attempt."""


async def look_on(
    web: "Web",
    servers: Sequence[str | ServerAddress],
    config: Config,
    on_failure: Callable[[str], None],
) -> None:
    """Let a page see the cluster of these servers, until cancelled.

    When that is not possible, the page shows the reason, and ``on_failure`` gets it, unless it is
    that of the failure before.
    """
    before = ""
    while True:
        try:
            async with sphtp.open_client(
                servers, name="page", data=OBSERVER_DATA, config=config
            ) as client:
                with web.observe_with(client):
                    web.problem, before = None, ""
                    await trio.sleep_forever()
        except SphtpError as error:
            if str(error) != before:
                web.problem = before = str(error)
                on_failure(before)
            await trio.sleep(PAUSE)
