"""Asks a server for its status."""

import json
from collections.abc import Iterable
from typing import Any, Final

import trio

from sphtp.core.control.client_messages import StatusRequest
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.lists import Assembly
from sphtp.core.control.outputs import topic
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.server_messages import StatusReply
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import EVERYBODY, draw_client_id
from sphtp.shell.bus_dialing import BusArrival, PubSocket, SubSocket
from sphtp.shell.config import DEFAULTS, Config, decisions
from sphtp.shell.driver import Wakeup
from sphtp.shell.lifetime import running
from sphtp.shell.probe import FaultKind, ServerFault, ServerWait, find_fault
from sphtp.shell.tls import require_tls
from sphtp.shell.vouching import Vouching, vouching

REPEAT: Final = 0.25
"""Seconds between two requests: the first answer may come before the subscription holds."""

MOST_NESTED: Final = 16
"""The most levels of nested lists and mappings; a server uses four."""

MAX_STATUS_PARTS: Final = 256
"""The most messages of one answer."""


async def fetch_status(
    address: str | ServerAddress, *, config: Config = DEFAULTS
) -> dict[str, Any]:
    """Return the status of a server: its view, clients and counters.

    Of ``config``, a status request uses ``cluster`` and ``timers``. The key that signs the answer
    has to be one of ``cluster.server_keys``, or be certified by one.

    Raises:
        UnreachableError: the server did not answer; the message has the cause. Raised within a
            second if no program listens or the secret is wrong, else after
            ``timers.answer_timeout``.
        BusError: the address is malformed.
        SettingsError: the secret, a key or a file is invalid, or the files do not fit the address.
    """
    address = ServerAddress.parse(address) if isinstance(address, str) else address
    cluster, tls = config.cluster, config.cluster.tls
    require_tls([address], tls)
    timers = config.timers or ControlTimers()
    server_wait = ServerWait(timers.answer_timeout, missing=f"no answer from {address}")
    wakeup = Wakeup()
    number = draw_client_id(decisions(None))
    with (
        SubSocket(on_connected=wakeup.wake, tls=tls) as subscriber,
        PubSocket(buffer=1, on_connected=wakeup.wake, tls=tls) as publisher,
    ):
        # What is for everybody tells, where no answer comes, whether a secret is why.
        for each in (number, EVERYBODY):
            subscriber.subscribe(topic(each))
        subscriber.dial(address.pub)
        publisher.dial(address.sub)
        trust = vouching(cluster.secret, cluster.server_keys)
        answer = _StatusAnswer(trust)

        async def look_for_trouble() -> None:
            await trio.sleep(server_wait.first_look)
            while True:
                answer.fault = await find()
                server_wait.note(answer.fault)
                await trio.sleep(server_wait.pause)

        async def find() -> ServerFault | None:
            if trust.secret_fault is not None:
                return ServerFault(FaultKind.PERMANENT, trust.secret_fault)
            if subscriber.connections and publisher.connections:
                return None
            return await find_fault([address], tls)

        ask_at = trio.current_time() + REPEAT
        async with running(look_for_trouble):
            with trio.CancelScope(deadline=server_wait.deadline):
                while answer.document is None:
                    with wakeup.waiting(ask_at):
                        answer.add(await subscriber.receive_arrivals())
                        continue
                    wakeup.clear()
                    publisher.send(trust.mark(StatusRequest(number).encode()))
                    ask_at = trio.current_time() + REPEAT
    if answer.document is None:
        fault = answer.fault
        raise server_wait.give_up("it says nothing" if fault is None else fault.text)
    return answer.document


class _StatusAnswer:
    """Joins an answer from its parts. A malformed part is ignored."""

    def __init__(self, trust: Vouching) -> None:
        self.document: dict[str, Any] | None = None
        self.fault: ServerFault | None = None
        self._trust = trust
        self._counters = ControlCounters()
        self._intake = MessageReader(self._counters, for_client=True)
        self._parts = Assembly[bytes](self._counters)

    def add(self, batch: list[BusArrival]) -> None:
        for arrival in batch:
            verified = self._trust.check(arrival, self._counters)
            message = None if verified is None else self._intake.take(verified.data)
            if isinstance(message, StatusReply) and message.part.count <= MAX_STATUS_PARTS:
                texts = self._parts.add(message.part, [message.text])
                self.document = self.document or read_untrusted(texts)


def read_untrusted(texts: list[bytes] | None) -> dict[str, Any] | None:
    """Return the document of a server from its parts; None if it is malformed."""
    try:
        document = json.loads(b"".join(texts or ()))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and _is_shallow(document) else None


def _is_shallow(document: dict[str, Any]) -> bool:
    """Return True if lists and mappings are nested at most ``MOST_NESTED`` levels deep."""
    level: list[Any] = [document]
    for _ in range(MOST_NESTED):
        level = [inner for outer in level for inner in _inside(outer)]
    return not level


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
