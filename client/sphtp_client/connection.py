"""The connection of a verb to a cluster: servers, timers, keys, simulated faults, and a log."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sphtp
from sphtp import Client, Identity
from sphtp.config import ChannelSettings, ControlTimers, Impairment, TurnServer
from sphtp.core.datagrams import Address
from sphtp.errors import SettingsError
from sphtp.messages import MessageCodec
from sphtp.observe import Instrument, QlogWriter
from sphtp.security import Tls, load_identity, load_public_keys, load_secret, parse_key
from sphtp.shell.addresses import parse_http_address
from sphtp.shell.keys import load_token
from sphtp_client.options import channel_settings
from sphtp_server.client_config import relay_server


@dataclass(frozen=True)
class ConnectionSettings:
    """The parameters of a client's connection; times in seconds.

    ``wait`` is the longest wait for a server to start, and for running servers to acknowledge the
    client. ``impairment`` has the faults of received datagrams. ``qlog`` is a file for the log of
    the channels. ``metrics`` is the address at which to serve metrics, and ``token`` the token that
    requests for them need; ``web`` and ``web_token`` are the same for the page. ``relay`` is the
    server of TURN that the client may use. ``timers``, ``channel`` and ``seed`` go into ``Config``,
    and so do the identity of the client, and its secret, keys and certificates.
    """

    servers: tuple[str, ...]
    timers: ControlTimers = field(default_factory=ControlTimers)
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    wait: float = 30.0
    impairment: Impairment = field(default_factory=Impairment)
    seed: int | None = None
    qlog: Path | None = None
    secret: bytes | None = field(default=None, repr=False)
    server_keys: frozenset[bytes] = frozenset()
    identity: Identity | None = None
    tls: Tls | None = None
    relay: TurnServer | None = None
    metrics: Address | None = None
    token: str | None = field(default=None, repr=False)
    web: Address | None = None
    web_token: str | None = field(default=None, repr=False)

    def open(
        self,
        data: Any,
        instruments: Sequence[Instrument] = (),
        *,
        name: str,
        messages: MessageCodec | None = None,
        ids: Iterator[int] | None = None,
    ) -> AbstractAsyncContextManager[Client]:
        """Register with the servers for the length of the block; raises as ``open_client``."""
        config = self.config(instruments, messages)
        return sphtp.open_client(list(self.servers), name=name, data=data, ids=ids, config=config)

    def config(
        self, instruments: Sequence[Instrument] = (), messages: MessageCodec | None = None
    ) -> sphtp.Config:
        """Return the ``Config`` of the client."""
        return sphtp.Config(
            timers=replace(self.timers, answer_timeout=self.wait, start_timeout=self.wait),
            channel=self.channel,
            impairment=self.impairment,
            seed=self.seed,
            instruments=instruments,
            messages=messages,
            security=sphtp.security.Security(identity=self.identity),
            cluster=sphtp.security.ClusterSecurity(
                secret=self.secret, server_keys=self.server_keys, tls=self.tls
            ),
            relay=self.relay,
        )


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The command-line values for a connection; times in seconds."""

    server: tuple[str, ...]
    loss: float
    duplicate: float
    reorder: float
    seed: int | None
    heartbeat: float
    expiry: float
    channel_timeout: float
    resend_time: float
    wait: float
    secret_file: Path | None
    server_key: tuple[str, ...]
    server_key_file: Path | None
    identity_file: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    relay: str | None
    relay_password_file: Path | None
    qlog: Path | None = None
    metrics: str | None = None
    metrics_token_file: Path | None = None
    web: str | None = None
    web_token_file: Path | None = None

    def connection(self) -> ConnectionSettings:
        """Return the connection for these values. Raises ``SettingsError``, also for files."""
        return ConnectionSettings(
            servers=self.server,
            timers=ControlTimers(heartbeat=self.heartbeat, expiry=self.expiry),
            channel=channel_settings(self.channel_timeout, self.resend_time),
            wait=self.wait,
            impairment=Impairment(loss=self.loss, duplicate=self.duplicate, reorder=self.reorder),
            seed=self.seed,
            qlog=self.qlog,
            secret=None if self.secret_file is None else load_secret(self.secret_file),
            server_keys=self._server_keys(),
            identity=None if self.identity_file is None else load_identity(self.identity_file),
            tls=self._tls(),
            relay=relay_server(self.relay, self.relay_password_file),
            metrics=None if self.metrics is None else parse_http_address(self.metrics),
            token=None if self.metrics_token_file is None else load_token(self.metrics_token_file),
            web=None if self.web is None else parse_http_address(self.web),
            web_token=None if self.web_token_file is None else load_token(self.web_token_file),
        )

    def _server_keys(self) -> frozenset[bytes]:
        file = self.server_key_file
        listed = frozenset() if file is None else load_public_keys(file)
        return listed.union(map(parse_key, self.server_key))

    def _tls(self) -> Tls | None:
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        return Tls(*files) if any(files) else None


@contextmanager
def channel_log(path: Path | None, title: str) -> Iterator[tuple[Instrument, ...]]:
    """Yield the instruments that write a log to a file; none if ``path`` is None.

    Raises ``SettingsError`` if the file cannot be opened.
    """
    if path is None:
        yield ()
        return
    try:
        writer = QlogWriter(path, title=title)
    except OSError as error:
        raise SettingsError(f"--qlog = {path}: {error.strerror}") from error
    with writer:
        yield (writer,)


def make_log_directory(path: Path, option: str = "--qlog") -> None:
    """Make a directory for logs, if it does not exist. Raises ``SettingsError`` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{option} = {path}: {error.strerror}") from error
