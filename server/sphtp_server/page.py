"""The client that collects the data of a program's page from the whole cluster.

By itself a page shows the data of the servers and clients of its own process. To show the whole
cluster, it needs a client that requests the status of all other clients. This client opens with the
page, and opens again after a failure, as long as the page exists. Its failures do not end the
program.
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
    """Collect the data of a page from the cluster of these servers, until cancelled.

    After a failure, the page shows the reason. ``on_failure`` is called with the reason if it
    differs from that of the failure before, or if the client was open in between.
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
