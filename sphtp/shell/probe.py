"""Servers that do not answer: the diagnosis of the fault, and the wait for an answer.

NNG dials in the background and does not report why a connection fails. So this module dials each
address of a silent server once more. Both sides of a bus connection first send eight bytes: a NUL,
"SP", a version, the number of the sender's protocol, and two NULs. An address that answers with the
bytes of the expected protocol has no fault. Any other result is a fault, with a text for users.

``ServerWait`` logs each fault once, and raises the last one when waiting cannot help any more.
"""

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import trio

from sphtp.core.control.records import ServerAddress
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.tls import Tls, is_tls

ANSWER_WITHIN: Final = 0.35
"""Seconds for a connection and its first bytes."""

PUB: Final = 0x20
SUB: Final = 0x21
"""The numbers of the two protocols in the header of a connection."""

_HEADER: Final = b"\0SP\0\0%c\0\0"
_HEADER_SIZE: Final = 8


class FaultKind(IntEnum):
    """The kinds of fault: a fault with a higher number is more likely to pass with time."""

    PERMANENT = 0
    """Waiting does not help: another program answers, for example, or the secret is wrong."""
    ABSENT = 1
    """No program listens at the address, or no way leads there: a server may still be started."""
    SILENT = 2
    """The server is silent: it may be slow, stopped, full, or behind a firewall that drops."""


class ServerFault(NamedTuple):
    """The fault because of which no message of a server arrives."""

    kind: FaultKind
    text: str


async def find_fault(servers: Iterable[ServerAddress], tls: Tls | None) -> ServerFault | None:
    """Dial all addresses of these servers at once; return None if a server answers at both.

    Otherwise the result has the text of one fault of each server, and the kind that is most likely
    to pass.
    """
    found: dict[ServerAddress, dict[int, ServerFault]] = {server: {} for server in servers}

    async def look(server: ServerAddress, url: str, protocol: int) -> None:
        if (fault := await _find_at(url, protocol, tls)) is not None:
            found[server][protocol] = fault

    async with trio.open_nursery() as nursery:
        for server in found:
            nursery.start_soon(look, server, server.pub, PUB)
            nursery.start_soon(look, server, server.sub, SUB)
    if not all(found.values()):
        return None
    faults = [_fault_of([at[port] for port in sorted(at)]) for at in found.values()]
    text = "; ".join(dict.fromkeys(fault.text for fault in faults))
    return ServerFault(max(fault.kind for fault in faults), text)


def _fault_of(faults: list[ServerFault]) -> ServerFault:
    """Return the fault of a server from those of its two addresses, of which one may have none.

    A permanent fault decides. Otherwise it is the one that is more likely to pass, because a busy
    machine sometimes needs longer than ``ANSWER_WITHIN``.
    """
    permanent = [fault for fault in faults if fault.kind is FaultKind.PERMANENT]
    return permanent[0] if permanent else max(faults, key=lambda fault: fault.kind)


async def _find_at(url: str, protocol: int, tls: Tls | None) -> ServerFault | None:
    parts = urlsplit(url)
    probe = _Probe(parts.hostname or "", parts.port or 0, protocol)
    with trio.move_on_after(ANSWER_WITHIN):
        try:
            return await probe.run(tls if is_tls(url) else None)
        except socket.gaierror as error:
            return ServerFault(
                FaultKind.ABSENT, f"the name {probe.host!r} is unknown ({error.strerror})"
            )
        except UnicodeError:
            return ServerFault(FaultKind.PERMANENT, f"{probe.host!r} is not a valid host name")
        except ConnectionRefusedError:
            return ServerFault(FaultKind.ABSENT, f"connection refused by {probe.name}")
        except OSError as error:
            return ServerFault(FaultKind.ABSENT, f"no way to {probe.name} ({error.strerror})")
    if probe.is_connected:
        text = f"{probe.name} accepts connections and sends nothing: no SphTP server, or stopped"
        return ServerFault(FaultKind.SILENT, text)
    return ServerFault(FaultKind.SILENT, f"no answer from {probe.name}")


class _Probe:
    """The probe of one address of a server."""

    def __init__(self, host: str, port: int, protocol: int) -> None:
        self.host = host
        self.name = _joined(host, port)
        self.is_connected = False
        self._port = port
        self._protocol = protocol

    async def run(self, tls: Tls | None) -> ServerFault | None:
        """Connect and exchange the first bytes. Return the fault, or None if the server answers.

        Raises ``OSError`` if connecting fails.
        """
        async with self._connected() as stream:
            try:
                if tls is None:
                    await stream.send_all(_HEADER % (PUB if self._protocol == SUB else SUB))
                    header = await _receive_header(stream)
                else:
                    secured = trio.SSLStream(stream, _context(tls), server_hostname=self.host)
                    await secured.do_handshake()
                    # This side sends nothing here: a server that refuses its certificate would
                    # close a connection with unread bytes by a reset, which overtakes the alert.
                    header = await _receive_header(secured)
            except trio.BrokenResourceError as error:
                cause = error.__cause__
                # In TLS 1.3 the server checks this side's certificate after the handshake, and
                # sends an alert. The end of the connection alone may have another cause, because a
                # full server closes any connection.
                if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
                    return ServerFault(FaultKind.PERMANENT, self._why_no_handshake(cause, tls))
                header = b""
            except SettingsError as error:
                return ServerFault(FaultKind.PERMANENT, str(error))
        if header == _HEADER % self._protocol:
            return None
        if not header and tls is None and await self._speaks_tls():
            return ServerFault(
                FaultKind.PERMANENT, f"{self.name} speaks TLS: dial tls+tcp://{self.name}"
            )
        if not header:
            # A full server does that, too, until a client leaves.
            text = f"{self.name} accepts connections and closes them: full, or no SphTP server"
            return ServerFault(FaultKind.SILENT, text)
        return ServerFault(FaultKind.PERMANENT, self._why_strange(header))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[trio.abc.Stream]:
        # To the first address of a name only, as NNG does.
        answers = await trio.socket.getaddrinfo(self.host, self._port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = answers[0]
        if address[0] != self.host:
            self.name = f"{_joined(self.host, self._port)} ({address[0]})"
        with trio.socket.socket(family, kind, protocol) as connected:
            await connected.connect(address)
            self.is_connected = True
            yield trio.SocketStream(connected)

    async def _speaks_tls(self) -> bool:
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        try:
            async with self._connected() as stream:
                await trio.SSLStream(stream, anybody).do_handshake()
        except (OSError, trio.BrokenResourceError):
            return False
        return True

    def _why_no_handshake(self, cause: ssl.SSLError, tls: Tls | None) -> str:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {self.name} is not accepted: {cause.verify_message}"
        if cause.reason == "WRONG_VERSION_NUMBER":
            return f"{self.name} speaks no TLS: dial tcp://{self.name}, or give it a certificate"
        has_none = tls is None or tls.cert is None
        return f"{self.name} {'requires a client' if has_none else 'refuses our'} certificate"

    def _why_strange(self, header: bytes) -> str:
        if header == _HEADER % SUB:
            return f"{self.name} is a server's second port; name its first one"
        return f"{self.name} is no SphTP server: it answered {header!r}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _receive_header(stream: trio.abc.Stream) -> bytes:
    """Return the first eight bytes of the other side, or fewer if it closes the connection."""
    header = b""
    while len(header) < _HEADER_SIZE:
        more = await stream.receive_some(_HEADER_SIZE - len(header))
        if not more:
            break
        header += bytes(more)
    return header


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=tls.read_ca())
        if tls.cert is not None and tls.key is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(f"TLS: the files cannot be used: {error}") from error
    return context


FIRST_LOOK: Final = 0.1
"""Seconds until the first diagnosis; on one machine a server answers after 0.01."""

GRACE: Final = 0.5
"""Seconds for which a fault may pass by itself before it is reported."""

PAUSE: Final = 0.1
"""Seconds between two diagnoses at first, so that two slow ones end within a second."""

LONG_PAUSE: Final = 1.0
"""Seconds between two diagnoses later on, at least, except before the last one for a server that
may start later.
"""

LONGEST_PAUSE: Final = 5.0
"""Seconds between two diagnoses, at most."""

log: Final = logging.getLogger("sphtp.client")


class ServerWait:
    """The wait for an answer of servers, which begins now.

    ``timeout`` is for running servers, ``wait`` for servers that may start later, both in seconds.
    ``missing`` is the state that errors and warnings report, such as "not registered".
    """

    def __init__(
        self, timeout: float, wait: float = 0.0, *, missing: str = "not registered"
    ) -> None:
        self._missing = missing
        self._began = trio.current_time()
        self._wait = wait
        self.seconds = max(timeout, wait)
        self.deadline = self._began + self.seconds
        self.first_look = min(FIRST_LOOK, self.seconds / 2)
        self._warned: set[str] = set()
        self._silent: str | None = None

    @property
    def pause(self) -> float:
        """The seconds until the next diagnosis: as many as have passed, within bounds.

        A diagnosis opens connections like the bus itself. If a thousand clients start at once, or
        the server is full, such a connection may displace the client's own.
        """
        passed = self._passed
        if passed <= 2 * GRACE:
            return PAUSE
        pause = min(max(LONG_PAUSE, passed), LONGEST_PAUSE)
        return min(pause, self._wait - passed) if passed < self._wait else pause

    def note(self, fault: ServerFault | None) -> None:
        """Raise ``UnreachableError`` if waiting cannot help; otherwise log each fault once.

        In the first ``GRACE`` seconds, nothing is raised or logged. Silence is logged after two
        diagnoses in a row: if a thousand clients start at once, the server is too busy to answer
        some of them in time.
        """
        before, self._silent = self._silent, None
        if fault is not None and fault.kind is FaultKind.SILENT:
            self._silent = fault.text
            if before != fault.text:
                return
        if fault is None or self._passed < GRACE:
            return
        given = self._wait if fault.kind is FaultKind.ABSENT else 0.0
        if fault.kind is not FaultKind.SILENT and self._passed >= given:
            waited = f" within {given:g} s" if given else ""
            raise UnreachableError(f"{self._missing}{waited}: {fault.text}")
        self.warn(fault)

    def warn(self, fault: ServerFault) -> None:
        """Log a fault, unless it was logged before."""
        if fault.text not in self._warned:
            self._warned.add(fault.text)
            left = self.deadline - trio.current_time()
            log.warning("%s yet: %s; waiting for up to %.3g s", self._missing, fault.text, left)

    def give_up(self, why: str) -> UnreachableError:
        """Return the error of a timeout."""
        return UnreachableError(f"{self._missing} within {self.seconds:g} s: {why}")

    @property
    def _passed(self) -> float:
        return trio.current_time() - self._began
