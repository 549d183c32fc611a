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
from sphtp.shell.bus import Arrival, Publisher, Subscriber
from sphtp.shell.tls import Tls, require_tls
from sphtp.shell.vouching import Vouching, vouching

REPEAT: Final = 0.25
"""Seconds between two requests; the answer to the first may be published before we can hear it."""

MAX_PARTS: Final = 256
"""Messages that one answer may consist of."""


async def fetch_status(
    address: ServerAddress,
    *,
    timeout: float = 5.0,
    secret: bytes | None = None,
    tls: Tls | None = None,
) -> dict[str, Any]:
    """Return what a server tells about itself: its view, clients and counters.

    Raises:
        UnreachableError: it did not answer within ``timeout`` seconds.
        BusError: the bus cannot make sense of the address.
        SettingsError: the secret or the files do not fit, or not the address.
    """
    require_tls([address], tls)
    bell = Bell()
    number = draw_client_id(SystemRandom())
    with (
        Subscriber(on_connected=bell.ring, tls=tls) as subscriber,
        Publisher(buffer=1, on_connected=bell.ring, tls=tls) as publisher,
    ):
        subscriber.subscribe(topic(number))
        subscriber.dial(address.pub)
        publisher.dial(address.sub)
        trust = vouching(secret)
        answer = _Answer(trust)
        with trio.move_on_after(timeout):
            while answer.document is None:
                with bell.listening(trio.current_time() + REPEAT):
                    answer.add(await subscriber.receive_arrivals())
                    continue
                bell.answer()
                publisher.send(trust.mark(StatusRequest(number).encode()))
    if answer.document is None:
        raise UnreachableError(f"no answer from {address} within {timeout:g} s")
    return answer.document


class _Answer:
    """Puts an answer together from its parts; what is malformed counts as not said."""

    def __init__(self, trust: Vouching) -> None:
        self.document: dict[str, Any] | None = None
        self._trust = trust
        self._counters = Counters()
        self._intake = Intake(self._counters, for_client=True)
        self._parts = Assembly[bytes]()

    def add(self, batch: list[Arrival]) -> None:
        for arrival in batch:
            heard = self._trust.check(arrival, self._counters)
            message = None if heard is None else self._intake.take(heard.data)
            if isinstance(message, Status) and message.part.count <= MAX_PARTS:
                texts = self._parts.add(message.part, [message.text])
                self.document = self.document or _read(texts)


def _read(texts: list[bytes] | None) -> dict[str, Any] | None:
    try:
        document = json.loads(b"".join(texts or ()))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
