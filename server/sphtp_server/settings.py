"""The settings of a server, as data: a field is a flag, a variable and a key of the file."""

import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sphtp import (
    ControlTimers,
    Peer,
    ServerAddress,
    ServerKey,
    ServerLimits,
    ServerOptions,
    Tls,
    allow_only,
    load_public_keys,
    load_secret,
    load_server_key,
)
from sphtp.core.control.settings import (
    MAX_ANSWERS,
    MAX_CLIENTS,
    MAX_CONNECTIONS,
    MAX_HANDSHAKE_TIMEOUT,
    MAX_HANDSHAKES,
    MAX_RATE,
    MIN_HANDSHAKE_TIMEOUT,
    SPARE_CONNECTIONS,
)
from sphtp.core.secure.identity import parse_key
from sphtp.errors import SettingsError
from sphtp.shell.addresses import is_loopback
from sphtp.shell.server import everybody
from sphtp_server.logs import LogFormat, LogLevel
from sphtp_server.sources import Sources

_TIMERS: Final = ControlTimers()
_LIMITS: Final = ServerLimits()


def _address(text: object) -> object:
    try:
        return str(ServerAddress.parse(text)) if isinstance(text, str) else text
    except SettingsError as error:
        raise ValueError(str(error)) from error


def _host(text: object) -> object:
    """Without the brackets that IPv6 has in addresses."""
    if isinstance(text, str) and text.startswith("[") and text.endswith("]"):
        return text[1:-1]
    return text


Host = Annotated[str, BeforeValidator(_host)]
Address = Annotated[str, BeforeValidator(_address)]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(BaseModel):
    """The settings of one server; times are in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Host = Field("127.0.0.1", description="Address to listen on.")
    pub_port: Port = Field(8764, description="Port to publish on; 0 takes any that is free.")
    sub_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port to hear clients on; 0 takes any that is free. Without it: the one after "
        "--pub-port.",
    )
    advertise: Address | None = Field(
        None,
        description="Address that others reach this server at, such as tcp://host:8764 or, with "
        "the second port, tcp://host:8764,8765. Without it: where it listens.",
    )
    join: tuple[Address, ...] = Field(
        (),
        description="Address of another server of the cluster, tcp://host:8764; repeatable. This "
        "server then admits nobody before it hears another one, and says what it waits for.",
    )
    new: bool = Field(
        False,
        description="This cluster starts now and nobody holds an id yet, so do not wait. With "
        "neither this nor --join a server waits two expiries before it admits anybody.",
    )
    insecure: bool = Field(
        False, description="Listen on more than loopback although nothing protects it."
    )
    secret_file: Path | None = Field(
        None,
        description="File with the cluster's secret (sphtp keygen): only who has it is heard.",
    )
    signing_key_file: Path | None = Field(
        None,
        description="File with this server's key (sphtp keygen --server), which signs all it says.",
    )
    server_key: tuple[str, ...] = Field(
        (),
        description="Public key of a server that is heard, or of a cluster that vouches for its "
        "servers; repeatable. Without: what vouches for --signing-key-file.",
    )
    server_key_file: Path | None = Field(
        None, description="File with public keys as for --server-key, one per line."
    )
    tls_cert: Path | None = Field(
        None, description="Certificate in PEM; the server then listens on tls+tcp."
    )
    tls_key: Path | None = Field(None, description="The private key of --tls-cert, in PEM.")
    tls_ca: Path | None = Field(
        None, description="Authority in PEM that the certificates of others have to come from."
    )
    tls_mutual: bool = Field(
        False, description="Whoever connects has to show a certificate of --tls-ca, too."
    )
    allow_key: tuple[str, ...] = Field(
        (), description="Public key of a client that may come; repeatable. Without: all may."
    )
    allow_file: Path | None = Field(
        None, description="File with public keys of clients that may come, one per line."
    )
    heartbeat: float = Field(_TIMERS.heartbeat, description="Seconds between heartbeats.")
    jitter: float = Field(_TIMERS.jitter, description="Share by which heartbeats vary.")
    expiry: float = Field(
        _TIMERS.expiry, description="Seconds of silence after which a client or server is gone."
    )
    announce_deadline: float = Field(
        _TIMERS.announce_deadline, description="Seconds that a client waits for every server."
    )
    max_clients: int = Field(
        _LIMITS.max_clients,
        ge=1,
        le=MAX_CLIENTS,
        description=f"Clients that are admitted, {MAX_CLIENTS} at most.",
    )
    announces_per_second: float = Field(
        _LIMITS.announces_per_second,
        ge=1,
        le=MAX_RATE,
        description="Announcements of clients that are answered in a second.",
    )
    lookups_per_second: float = Field(
        _LIMITS.lookups_per_second,
        ge=1,
        le=MAX_RATE,
        description="Lookups of clients that are answered in a second.",
    )
    data_per_second: float = Field(
        _LIMITS.data_per_second,
        ge=1,
        le=MAX_RATE,
        description="Changes of its data or topics that one client may tell in a second.",
    )
    max_answers: int = Field(
        _LIMITS.max_answers,
        ge=1,
        le=MAX_ANSWERS,
        description="Answers of one sort that wait to be sent together; others are not given.",
    )
    max_connections: int | None = Field(
        None,
        ge=1,
        le=MAX_CONNECTIONS,
        description="Connections of each of both sockets. Without it: twice --max-clients, and "
        f"{SPARE_CONNECTIONS} more.",
    )
    max_handshakes: int = Field(
        _LIMITS.max_handshakes,
        ge=1,
        le=MAX_HANDSHAKES,
        description="Connections that have not proved themselves yet; one more costs whoever has "
        "the most of them its oldest one.",
    )
    handshake_timeout: float = Field(
        _LIMITS.handshake_timeout,
        ge=MIN_HANDSHAKE_TIMEOUT,
        le=MAX_HANDSHAKE_TIMEOUT,
        description="Seconds that a connection has to prove itself: in TLS, in the greeting of the "
        "bus, and with --secret-file by a message.",
    )
    seed: int | None = Field(None, description="Makes the random choices repeatable, for tests.")
    log_level: LogLevel = Field("info", description="The least that is logged.")
    log_format: LogFormat = Field("console", description="Lines for people, or JSON.")
    log_interval: float = Field(
        10.0, gt=0, description="Seconds between reports of malformed or refused messages."
    )
    exit_with_stdin: bool = Field(
        False,
        description="Leave when standard input closes, so as not to outlive the program that "
        "started this one.",
    )

    @model_validator(mode="after")
    def _timers_agree(self) -> Self:
        try:
            self.timers()
        except SettingsError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _ports_exist(self) -> Self:
        try:
            self.bind()
        except SettingsError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _nothing_open_by_accident(self) -> Self:
        protected = self.insecure or self.secret_file or self.tls_cert
        if not protected and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is more than loopback, and nothing protects it: say "
                "--secret-file or --tls-cert, choose a loopback address, or say --insecure"
            )
        return self

    @model_validator(mode="after")
    def _others_can_find_it(self) -> Self:
        if self.advertise is None and _is_wildcard(self.host):
            raise ValueError(
                f"host {self.host} is every address of this machine, and others need one: "
                "say --advertise tcp://host:port"
            )
        return self

    def timers(self) -> ControlTimers:
        """Return the protocol's timers.

        Raises:
            SettingsError: they contradict each other.
        """
        return ControlTimers(
            heartbeat=self.heartbeat,
            jitter=self.jitter,
            expiry=self.expiry,
            announce_deadline=self.announce_deadline,
        )

    def bind(self) -> ServerAddress:
        """Return where to listen.

        Raises:
            SettingsError: there is no such address.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        second = "" if self.sub_port is None else f",{self.sub_port}"
        scheme = "tcp" if self.tls_cert is None else "tls+tcp"
        return ServerAddress.parse(f"{scheme}://{host}:{self.pub_port}{second}")

    @property
    def makes_servers_of_members(self) -> bool:
        """True if others have the secret with which they could pretend to be a server."""
        is_open = self.secret_file is not None and not is_loopback(self.host)
        return is_open and self.signing_key_file is None

    def options(self) -> ServerOptions:
        """Return what the library needs to know. Raises ``SettingsError`` for files."""
        return ServerOptions(
            bind=self.bind(),
            advertise=ServerAddress.parse(self.advertise) if self.advertise else None,
            join=tuple(ServerAddress.parse(address) for address in self.join),
            new_cluster=self.new,
            timers=self.timers(),
            limits=ServerLimits(
                self.max_clients,
                self.announces_per_second,
                self.lookups_per_second,
                self.data_per_second,
                self.max_answers,
                self.max_connections,
                self.max_handshakes,
                self.handshake_timeout,
            ),
            admit=self.admit(),
            secret=None if self.secret_file is None else load_secret(self.secret_file),
            signing_key=self.signing_key(),
            server_keys=self.server_keys(),
            tls=self.tls(),
            insecure=self.insecure,
            seed=self.seed,
        )

    def signing_key(self) -> ServerKey | None:
        """Return what to sign with, if anything. Raises ``SettingsError``."""
        return None if self.signing_key_file is None else load_server_key(self.signing_key_file)

    def server_keys(self) -> frozenset[bytes]:
        """Return the keys by which other servers are known. Raises ``SettingsError``."""
        return _public_keys(self.server_key, self.server_key_file)

    def tls(self) -> Tls | None:
        """Return the certificates, or None without any. Raises ``SettingsError``."""
        if not (self.tls_ca or self.tls_cert or self.tls_key or self.tls_mutual):
            return None
        return Tls(self.tls_ca, self.tls_cert, self.tls_key, self.tls_mutual)

    def admit(self) -> Callable[[Peer], bool]:
        """Return who may come. Raises ``SettingsError``."""
        if not self.allow_key and self.allow_file is None:
            return everybody
        return allow_only(_public_keys(self.allow_key, self.allow_file))


SOURCES: Final = Sources(ServerSettings, "SPHTP_SERVER_")


def _public_keys(keys: Iterable[str], file: Path | None) -> frozenset[bytes]:
    told = frozenset() if file is None else load_public_keys(file)
    return told.union(map(parse_key, keys))


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
