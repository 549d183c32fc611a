"""Asks a server how it is."""

import json
from random import SystemRandom
from typing import Any, Final

import trio

from sphtp.core.control.client_messages import StatusRequest
from sphtp.core.control.counters import Counters
from sphtp.core.control.ids import draw_client_id
from sphtp.core.control.intake import Intake
from sphtp.core.control.outputs import topic
from sphtp.core.control.parts import Assembly
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.server_messages import Status
from sphtp.errors import UnreachableError
from sphtp.shell.bell import Bell
from sphtp.shell.bus import Publisher, Subscriber

REPEAT: Final = 0.25
"""Seconds between two requests; the answer to the first may be published before we can hear it."""

MAX_PARTS: Final = 256
"""Messages that one answer may consist of."""


async def fetch_status(address: ServerAddress, *, timeout: float = 5.0) -> dict[str, Any]:
    """Return what a server tells about itself: its view, clients and counters.

    Raises:
        UnreachableError: it did not answer within ``timeout`` seconds.
        BusError: the bus cannot make sense of the address.
    """
    bell = Bell()
    number = draw_client_id(SystemRandom())
    with (
        Subscriber(on_connected=bell.ring) as subscriber,
        Publisher(buffer=1, on_connected=bell.ring) as publisher,
    ):
        subscriber.subscribe(topic(number))
        subscriber.dial(address.pub)
        publisher.dial(address.sub)
        answer = _Answer()
        with trio.move_on_after(timeout):
            while answer.document is None:
                with bell.listening(trio.current_time() + REPEAT):
                    answer.add(await subscriber.receive_batch())
                    continue
                bell.answer()
                publisher.send(StatusRequest(number).encode())
    if answer.document is None:
        raise UnreachableError(f"no answer from {address} within {timeout:g} s")
    return answer.document


class _Answer:
    """Puts an answer together from its parts; what is malformed counts as not said."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None
        self._intake = Intake(Counters(), for_client=True)
        self._parts = Assembly[bytes]()

    def add(self, batch: list[bytes]) -> None:
        for data in batch:
            message = self._intake.take(data)
            if isinstance(message, Status) and message.part.count <= MAX_PARTS:
                texts = self._parts.add(message.part, [message.text])
                self.document = self.document or _read(texts)


def _read(texts: list[bytes] | None) -> dict[str, Any] | None:
    try:
        document = json.loads(b"".join(texts or ()))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
