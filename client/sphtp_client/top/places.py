"""Readers of places that report a state: addresses of metrics over HTTP, and servers.

The readers run on asyncio. A reader never raises: a failure becomes the error of the report. So a
program that ends causes an error in its report, and after its restart the reports are complete
again.

Metrics are requested in HTTP/1.0, whose response is not chunked, and ends with the connection.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import sphtp
from sphtp import ServerAddress, aio
from sphtp.core.printable import printable
from sphtp.errors import RemoteError, SettingsError, SphtpError, WireError, untrusted
from sphtp.shell.addresses import MOST_PORT
from sphtp_client.top.model import (
    PlaceReport,
    Sample,
    read_samples_untrusted,
    read_status_untrusted,
)

LARGEST_PAGE: Final = 64 * 1024 * 1024
"""The largest response, in bytes: the metrics of some 40,000 channels."""

MOST_PLACES: Final = 1024

SERVERS_ALONE: Final = (
    "servers report only peers: for channels, streams and groups, start programs with --metrics "
    "PORT, and give these ports"
)
"""The hint if all places are servers, which do not report channels."""

OF_SERVERS: Final = ("tcp://", "tls+tcp://")

_NO_ANSWER: Final = re.compile(r"^no answer from \S+( within \S+ s)?:? *")
_PORTS: Final = re.compile(r"(?P<host>.*:)?(?P<first>\d{1,5})-(?P<last>\d{1,5})")


class PlaceReader(Protocol):
    """The interface of readers, each of which reads the state of one place."""

    @property
    def place(self) -> str:
        """The name of the place in reports."""
        ...

    async def read(self) -> PlaceReport:
        """Return the present state, or a report with an error. Never raises."""
        ...


@dataclass(frozen=True)
class PageReader:
    """A reader of metrics over HTTP, with a timeout of ``patience`` seconds."""

    host: str
    port: int
    patience: float
    token: str | None = None
    path: str = "/metrics"
    is_secure: bool = False

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def read(self) -> PlaceReport:
        """Return the present state, or a report with an error."""
        try:
            async with asyncio.timeout(self.patience):
                answer = await self._fetch()
            samples = read_answer_untrusted(answer)
        except TimeoutError:
            error = f"no answer within {self.patience:g} s"
        except OSError as failure:
            error = _sentence(failure)
        except (RemoteError, ValueError) as failure:
            # A name that no resolver takes is a ValueError.
            error = printable(str(failure), 200)
        else:
            if any(sample.name.startswith("sphtp_") for sample in samples):
                return read_samples_untrusted(self.place, time.monotonic(), samples)
            error = "it is no page of metrics of SphTP"
        return PlaceReport(place=self.place, at=time.monotonic(), error=error)

    async def _fetch(self) -> bytes:
        context = ssl.create_default_context() if self.is_secure else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context)
        try:
            lines = [f"GET {self.path} HTTP/1.0", f"Host: {self.place}"]
            if self.token is not None:
                lines.append(f"Authorization: Bearer {self.token}")
            writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            answer = bytearray()
            while part := await reader.read(1 << 16):
                answer += part
                if len(answer) > LARGEST_PAGE:
                    raise RemoteError(f"the page is over {LARGEST_PAGE} bytes")
            return bytes(answer)
        finally:
            writer.transport.abort()


def _sentence(error: OSError) -> str:
    # If a name has several addresses, asyncio joins their errors.
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error):
        return "connection refused"
    return error.strerror or str(error) or type(error).__name__


@untrusted
def read_answer_untrusted(answer: bytes) -> list[Sample]:
    """Return the samples in an HTTP response. Raises ``RemoteError``, with the reason."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not _STATUS.fullmatch(words[1]):
        raise WireError("its answer is not HTTP")
    status = int(words[1])
    if status == 401:
        raise WireError("it asks for a token: --metrics-token-file")
    if status != 200:
        raise WireError(f"HTTP status {status}")
    return samples_untrusted(body.decode(errors="replace"))


# The text format of Prometheus, version 0.0.4: a sample is a name, labels in braces, and a value. A
# node with 200 channels has thousands of samples, whose labels repeat. Each text of labels is
# parsed once, which makes this several times as fast as the parser of prometheus_client.

_STATUS: Final = re.compile(rb"\d{3}")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? +(\S+)(?: +-?\d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPED: Final = re.compile(r"\\(.)")


@untrusted
def samples_untrusted(text: str) -> list[Sample]:
    """Return the samples in a text of metrics. Raises ``RemoteError`` if it is malformed."""
    found: list[Sample] = []
    read: dict[str, Mapping[str, str]] = {}
    # Labels may contain other line separators, so splitlines would be wrong.
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise WireError("its metrics are malformed")
        name, labels, value = match.groups("")
        known = read.get(labels)
        if known is None:
            known = read[labels] = _labels(labels)
        try:
            found.append(Sample(name, known, float(value)))
        except ValueError as error:
            raise WireError("its metrics are malformed") from error
    return found


def _labels(text: str) -> Mapping[str, str]:
    found, end = {}, 0
    while end < len(text):
        match = _LABEL.match(text, end)
        if match is None:
            raise WireError("its metrics are malformed")
        found[match[1]] = _ESCAPED.sub(_unescaped, match[2])
        end = match.end()
    return found


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


@dataclass(frozen=True)
class ServerReader:
    """A reader of the status of a server."""

    address: ServerAddress
    config: sphtp.Config

    @property
    def place(self) -> str:
        """The address of the server."""
        return str(self.address)

    async def read(self) -> PlaceReport:
        """Return the present state, or a report with an error."""
        try:
            status = await aio.fetch_status(self.address, config=self.config)
        except (SphtpError, OSError) as error:
            # The display shows the place before the error.
            text = _NO_ANSWER.sub("", str(error)) or str(error)
            return PlaceReport(place=self.place, at=time.monotonic(), error=printable(text))
        return read_status_untrusted(self.place, time.monotonic(), status)


def are_servers_alone(readers: Iterable[PlaceReader]) -> bool:
    """Return True if all places are servers, which report no channels."""
    return all(isinstance(reader, ServerReader) for reader in readers)


def parse_places(
    texts: Iterable[str], config: sphtp.Config, patience: float, token: str | None = None
) -> list[PlaceReader]:
    """Return a reader for each host and port; of several addresses with both, the last one counts.

    An address is that of a server, as ``ServerAddress.parse`` takes it but with a scheme, or of
    metrics, ``[http[s]://][HOST:]PORT[/PATH]``. A port at the end of an address may be a range,
    ``9464-9469``. Raises ``SettingsError`` for other addresses, and for more than ``MOST_PLACES``.
    """
    readers: dict[str, PlaceReader] = {}
    for text in texts:
        for one in _expand(text):
            reader = _reader(one, config, patience, token)
            readers[reader.place] = reader
            if len(readers) > MOST_PLACES:
                raise SettingsError(f"{text!r}: more than {MOST_PLACES} addresses")
    return [*readers.values()]


def _expand(text: str) -> Iterator[str]:
    match = _PORTS.fullmatch(text)
    if match is None:
        yield text
        return
    first, last = int(match["first"]), int(match["last"])
    if not first <= last < first + MOST_PLACES:
        raise SettingsError(
            f"{text!r}: the ports run from the lower to the higher one, {MOST_PLACES} at most"
        )
    for port in range(first, last + 1):
        yield f"{match['host'] or ''}{port}"


def _reader(text: str, config: sphtp.Config, patience: float, token: str | None) -> PlaceReader:
    if text.startswith(OF_SERVERS):
        return ServerReader(ServerAddress.parse(text), config)
    full = text if "://" in text else f"http://{text if ':' in text else f'127.0.0.1:{text}'}"
    parts = urlsplit(full)
    try:
        port = parts.port
    except ValueError:
        port = None
    is_secure = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise SettingsError(
            f"{text!r} is neither a server, tcp://HOST:PORT, nor a page of metrics, "
            f"[http://][HOST:]PORT, with a port of 1 to {MOST_PORT}"
        )
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    if not path.isascii() or not path.isprintable() or " " in path:
        raise SettingsError(f"{text!r}: the path contains blanks or control characters")
    return PageReader(parts.hostname, port, patience, token, path, is_secure)
