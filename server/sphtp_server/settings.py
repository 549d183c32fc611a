"""The settings of a server: each field is an option, an environment variable and a TOML key."""

import ipaddress
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sphtp import Config, Peer, Server, ServerAddress
from sphtp.config import ControlTimers, ServerLimits
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
from sphtp.security import (
    ClusterSecurity,
    ServerKey,
    Tls,
    allow_only,
    load_public_keys,
    load_secret,
    load_server_key,
)
from sphtp.shell.addresses import is_loopback, parse_http_address
from sphtp.shell.bus_connections import listening_context
from sphtp.shell.keys import load_token
from sphtp.shell.server import everybody, open_shared_server, require_agreement
from sphtp_server.logs import LogFormat, LogLevel
from sphtp_server.registry.etcd import EtcdRegistry
from sphtp_server.registry.location import EtcdAccess, EtcdLocation
from sphtp_server.sources import Sources

if TYPE_CHECKING:
    from sphtp.web import Web
    from sphtp_server.registry.store import EtcdStore

_TIMERS: Final = ControlTimers()
_LIMITS: Final = ServerLimits()


def _address(text: object) -> object:
    try:
        return str(ServerAddress.parse(text)) if isinstance(text, str) else text
    except SettingsError as error:
        raise ValueError(str(error)) from error


def _host(text: object) -> object:
    """Return an IPv6 host without its brackets, and any other value unchanged."""
    if isinstance(text, str) and text.startswith("[") and text.endswith("]"):
        return text[1:-1]
    return text


def _web_place(text: object) -> object:
    # In a TOML file, a port alone may stand there as a number.
    if isinstance(text, int):
        text = str(text)
    try:
        if isinstance(text, str):
            parse_http_address(text)
    except SettingsError as error:
        raise ValueError(str(error)) from error
    return text


def _etcd_place(text: object) -> object:
    try:
        return str(EtcdLocation.parse(text)) if isinstance(text, str) else text
    except SettingsError as error:
        raise ValueError(str(error)) from error


Host = Annotated[str, BeforeValidator(_host)]
Address = Annotated[str, BeforeValidator(_address)]
EtcdPlace = Annotated[str, BeforeValidator(_etcd_place)]
WebPlace = Annotated[str, BeforeValidator(_web_place)]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(BaseModel):
    """The settings of one server; times are in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Host = Field("127.0.0.1", description="Address to listen on.")
    pub_port: Port = Field(8764, description="Port to publish on; 0 takes any free port.")
    sub_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port to receive on, from clients and servers; 0 takes any free port. Without "
        "it: the port after --pub-port, or any free port with --pub-port 0.",
    )
    advertise: Address | None = Field(
        None,
        description="Address at which other programs reach this server, such as "
        "tcp://host:8764 or, with the second port, tcp://host:8764,8765; with TLS, tls+tcp://. "
        "Without it: the address to listen on.",
    )
    join: tuple[Address, ...] = Field(
        (),
        description="Address of another server of the cluster, tcp://host:8764; repeatable. "
        "Without --new, this server then admits no new client before it reaches another server, "
        "and logs the reason.",
    )
    registry: EtcdPlace | None = Field(
        None,
        description="Registry on etcd that all servers of the cluster share, "
        "etcd://host:2379,host:2379/name, with tls+etcd:// for TLS. The servers then find each "
        "other there, without --join. Without it: a registry in memory.",
    )
    registry_ca: Path | None = Field(
        None,
        description="Authority in PEM that signed etcd's certificate. Without it: the authorities "
        "of the system.",
    )
    registry_cert: Path | None = Field(
        None, description="Certificate in PEM that this server presents to etcd."
    )
    registry_key: Path | None = Field(
        None, description="The private key of --registry-cert, in PEM."
    )
    registry_user: str | None = Field(
        None, description="User of etcd; its password is in --registry-password-file."
    )
    registry_password_file: Path | None = Field(
        None, description="File with the password of --registry-user."
    )
    new: bool = Field(
        False,
        description="Found a new cluster: no client holds an id yet, so admit clients at once. "
        "Without --new, --join and --registry, a server waits for another server, or for twice the "
        "expiry, before it admits clients. A server with --registry refuses --new.",
    )
    announce: bool = Field(
        True,
        description="Let clients find this server without its address (the default): clients of "
        "this user on this host and, unless its address for clients is on loopback, clients on "
        "this network.",
    )
    stun: bool = Field(
        False,
        description="Answer STUN requests at the UDP port with the number of --pub-port, so that "
        "peers behind NAT reach each other.",
    )
    insecure: bool = Field(
        False,
        description="Listen on more than loopback without a secret or TLS, and send the password "
        "of --registry-user without TLS.",
    )
    secret_file: Path | None = Field(
        None,
        description="File with the cluster's secret (sphtp keygen). The server drops messages "
        "that are not authenticated with it.",
    )
    signing_key_file: Path | None = Field(
        None,
        description="File with this server's key (sphtp keygen --server), which signs its "
        "messages.",
    )
    server_key: tuple[str, ...] = Field(
        (),
        description="Public key of a server to accept, or of a cluster that certifies its servers; "
        "repeatable. Without it: the key that certifies --signing-key-file, or that key itself; "
        "without both: any server.",
    )
    server_key_file: Path | None = Field(
        None, description="File with public keys as for --server-key, one per line."
    )
    tls_cert: Path | None = Field(
        None, description="Certificate in PEM; the server then listens on tls+tcp."
    )
    tls_key: Path | None = Field(None, description="The private key of --tls-cert, in PEM.")
    tls_ca: Path | None = Field(
        None,
        description="Authority in PEM that must have signed the certificates of other programs.",
    )
    tls_mutual: bool = Field(
        False, description="Require a certificate of --tls-ca from clients, too."
    )
    allow_key: tuple[str, ...] = Field(
        (),
        description="Public key of a client to admit; repeatable. Without it and "
        "--allow-file: all clients.",
    )
    allow_file: Path | None = Field(
        None, description="File with public keys of clients to admit, one per line."
    )
    heartbeat: float = Field(_TIMERS.heartbeat, description="Seconds between two heartbeats.")
    jitter: float = Field(
        _TIMERS.jitter,
        description="Largest share of --heartbeat by which a heartbeat is earlier or later.",
    )
    expiry: float = Field(
        _TIMERS.expiry,
        description="Seconds of silence after which the server removes a client or a server.",
    )
    announce_deadline: float | None = Field(
        None,
        description="Seconds for which a joining server waits at least for the list of a server "
        "that it has found; use the value of the clients. Without it: three heartbeats.",
    )
    max_clients: int = Field(
        _LIMITS.max_clients,
        ge=1,
        le=MAX_CLIENTS,
        description=f"Most clients that the server admits, up to {MAX_CLIENTS}.",
    )
    announces_per_second: float = Field(
        _LIMITS.announces_per_second,
        ge=1,
        le=MAX_RATE,
        description="Announcements of clients that the server processes per second.",
    )
    lookups_per_second: float = Field(
        _LIMITS.lookups_per_second,
        ge=1,
        le=MAX_RATE,
        description="Lookups of clients that the server processes per second.",
    )
    data_per_second: float = Field(
        _LIMITS.data_per_second,
        ge=1,
        le=MAX_RATE,
        description="Changes of data, topics or groups that the server accepts from one client "
        "per second.",
    )
    stun_per_second: float = Field(
        _LIMITS.stun_per_second,
        ge=1,
        le=MAX_RATE,
        description="STUN requests that the server answers per second, of each host 64 at most.",
    )
    max_answers: int = Field(
        _LIMITS.max_answers,
        ge=1,
        le=MAX_ANSWERS,
        description="Most replies of one kind that wait to be sent in one batch; further requests "
        "get no reply.",
    )
    max_connections: int | None = Field(
        None,
        ge=1,
        le=MAX_CONNECTIONS,
        description="Most connections of each of the two sockets. Without it: twice --max-clients, "
        f"and {SPARE_CONNECTIONS} more.",
    )
    max_handshakes: int = Field(
        _LIMITS.max_handshakes,
        ge=1,
        le=MAX_HANDSHAKES,
        description="Most connections that have not authenticated yet. When there is one more, "
        "the server closes the oldest of them from the host that has the most.",
    )
    handshake_timeout: float = Field(
        _LIMITS.handshake_timeout,
        ge=MIN_HANDSHAKE_TIMEOUT,
        le=MAX_HANDSHAKE_TIMEOUT,
        description="Seconds within which a connection has to authenticate (in TLS, in the "
        "greeting of the bus, and with --secret-file by a message), and to complete each message.",
    )
    seed: int | None = Field(
        None, description="Random seed that makes random choices repeatable, for tests."
    )
    log_level: LogLevel = Field("info", description="The lowest level that is logged.")
    log_format: LogFormat = Field("console", description="Lines for people, or JSON.")
    log_file: Path | None = Field(
        None,
        description="File to which the server appends its log; SIGHUP reopens it. Without it: "
        "standard output.",
    )
    log_interval: float = Field(
        10.0, gt=0, description="Seconds between two log entries about dropped messages."
    )
    metrics: WebPlace | None = Field(
        None,
        description="Serve metrics for Prometheus, and health, over HTTP at [HOST:]PORT; without "
        "HOST, on loopback. Port 0 takes any free port.",
    )
    metrics_token_file: Path | None = Field(
        None,
        description="File with the token that requests for metrics must contain (Authorization: "
        "Bearer); needed on more than loopback.",
    )
    web: WebPlace | None = Field(
        None,
        description="Serve a page of the cluster, with metrics and health, over HTTP at "
        "[HOST:]PORT; without HOST, on loopback. Port 0 takes any free port.",
    )
    web_token_file: Path | None = Field(
        None,
        description="File with the token that requests for the page must contain; needed on more "
        "than loopback.",
    )
    drain_time: float = Field(
        30.0,
        gt=0,
        description="Longest time, in seconds, for which the server waits after SIGUSR1 until its "
        "clients have reached other servers.",
    )
    exit_with_stdin: bool = Field(
        False,
        description="Leave the cluster and end when standard input closes, so that the server does "
        "not outlive the program that started it.",
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
                f"host {self.host} is open to other machines, and nothing protects it: give "
                "--secret-file or --tls-cert, choose a loopback address, or give --insecure"
            )
        return self

    @model_validator(mode="after")
    def _others_can_find_it(self) -> Self:
        if self.advertise is None and _is_wildcard(self.host):
            raise ValueError(
                f"host {self.host} means all addresses of this machine, and others need one to "
                "dial: give --advertise tcp://host:port"
            )
        return self

    @model_validator(mode="after")
    def _registry_is_protected(self) -> Self:
        if self.registry is None:
            return self
        if self.join:
            raise ValueError(
                "servers that share a registry find each other there: give --registry or --join, "
                "not both"
            )
        if self.new:
            raise ValueError(
                "with a shared registry, a server admits clients without waiting: give --registry "
                "or --new, not both"
            )
        location = EtcdLocation.parse(self.registry)
        is_open = not location.is_tls and not all(is_loopback(it) for it, _ in location.endpoints)
        if is_open and self.registry_user is not None and not self.insecure:
            raise ValueError(
                "the password for the registry would cross the network in the clear: write "
                "tls+etcd://, or give --insecure"
            )
        return self

    def timers(self) -> ControlTimers:
        """Return the timers of the control plane.

        Raises:
            SettingsError: a timer is out of range, or contradicts another one.
        """
        return ControlTimers(
            heartbeat=self.heartbeat,
            jitter=self.jitter,
            expiry=self.expiry,
            announce_deadline=self.announce_deadline,
        )

    def bind(self) -> ServerAddress:
        """Return the address to listen on.

        Raises:
            SettingsError: the host or a port is invalid.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        second = "" if self.sub_port is None else f",{self.sub_port}"
        scheme = "tcp" if self.tls_cert is None else "tls+tcp"
        return ServerAddress.parse(f"{scheme}://{host}:{self.pub_port}{second}")

    @property
    def makes_servers_of_members(self) -> bool:
        """True if every holder of the secret on another machine can impersonate a server."""
        is_open = self.secret_file is not None and not is_loopback(self.host)
        return is_open and self.signing_key_file is None

    def open(self, admit: Callable[[Peer], bool]) -> AbstractAsyncContextManager[Server]:
        """Run the server for the length of the block. ``admit`` decides on new clients.

        Raises as ``open_server``, and ``ModuleNotFoundError`` with the remedy if a package that the
        settings need is missing.
        """
        self.load_packages()
        return open_shared_server(
            self.store(),
            self.bind(),
            advertise=self.advertise,
            join=self.join,
            new_cluster=self.new,
            announce=self.announce,
            stun=self.stun,
            admit=admit,
            config=self.config(),
        )

    def load_packages(self) -> None:
        """Load the optional packages that the settings need, except those for a registry.

        Raises ``ModuleNotFoundError`` with the remedy if one is missing.
        """
        if self.stun:
            import sphtp.shell.nat  # noqa: F401
        if self.metrics is not None or self.web is not None:
            from sphtp.web import open_web  # noqa: F401

    def require_agreement(self) -> None:
        """Raise ``SettingsError`` if the settings contradict each other, or a file is wrong."""
        bind, cluster = self.bind(), self.config().cluster
        advertise = None if self.advertise is None else ServerAddress.parse(self.advertise)
        require_agreement(bind, advertise, [*map(ServerAddress.parse, self.join)], cluster)
        for url in (bind.pub, bind.sub):
            listening_context(cluster.tls, url)

    def store(self) -> "EtcdStore | None":
        """Return the shared registry on etcd; None if the settings have no registry.

        Raises as ``registry_access``, and ``ModuleNotFoundError`` with the remedy if a package is
        missing.
        """
        access = self.registry_access()
        if self.registry is None:
            return None
        location = EtcdLocation.parse(self.registry)
        try:
            from sphtp_server.registry.gateway import Gateway
            from sphtp_server.registry.store import EtcdStore, suspended
        except ModuleNotFoundError as error:
            from sphtp.__main__ import how_to_get

            remedy = how_to_get("--registry", error) or str(error)
            raise ModuleNotFoundError(remedy, name=error.name) from error
        registry = EtcdRegistry(self.expiry, self.max_clients, location.name, suspended=suspended)
        return EtcdStore(registry, Gateway(location, access))

    def registry_access(self) -> EtcdAccess:
        """Return the credentials for etcd.

        Raises ``SettingsError`` if one is missing, a file is wrong, there is no registry, or there
        are certificates for a registry without TLS.
        """
        path = self.registry_password_file
        access = EtcdAccess(
            self.registry_ca,
            self.registry_cert,
            self.registry_key,
            self.registry_user,
            None if path is None else load_token(path),
        )
        if self.registry is None:
            if access != EtcdAccess():
                raise SettingsError("files or a user for a registry are given without --registry")
        elif EtcdLocation.parse(self.registry).is_tls:
            access.tls()
        elif self.registry_ca or self.registry_cert:
            raise SettingsError(f"certificates for {self.registry} are given: write tls+etcd://")
        return access

    def open_web(self, server: Server) -> "AbstractAsyncContextManager[Web | None]":
        """Serve metrics for the length of the block, if ``metrics`` is set. Yields None otherwise.

        Raises as ``open_web``, and ``ModuleNotFoundError`` with the remedy if the extra is missing.
        """
        if self.metrics is None:
            return nullcontext()
        from sphtp.web import open_web

        host, port = parse_http_address(self.metrics)
        return open_web(server, host=host, port=port, token=self.metrics_token())

    def open_page(self, server: Server) -> "AbstractAsyncContextManager[Web | None]":
        """Serve the page for the length of the block, if ``web`` is set. Yields None otherwise.

        Raises as ``open_web``, and ``ModuleNotFoundError`` with the remedy if the extra is missing.
        """
        if self.web is None:
            return nullcontext()
        from sphtp.web import open_web

        host, port = parse_http_address(self.web)
        token, config = self.web_token(), self.config()
        return open_web(server, host=host, port=port, token=token, page=True, config=config)

    def metrics_token(self) -> str | None:
        """Return the token for metrics; None without a file. Raises ``SettingsError``."""
        return None if self.metrics_token_file is None else load_token(self.metrics_token_file)

    def web_token(self) -> str | None:
        """Return the token for the page; None without a file. Raises ``SettingsError``."""
        return None if self.web_token_file is None else load_token(self.web_token_file)

    @model_validator(mode="after")
    def _pages_are_protected(self) -> Self:
        for name, place, file in (
            ("metrics", self.metrics, self.metrics_token_file),
            ("web", self.web, self.web_token_file),
        ):
            if place is None or file is not None:
                continue
            host, _ = parse_http_address(place)
            if not is_loopback(host):
                raise ValueError(
                    f"{name} at {host} is open to other machines: give --{name}-token-file, or "
                    "choose a loopback address"
                )
        return self

    def config(self) -> Config:
        """Return the ``Config`` of the server. Raises ``SettingsError`` for a wrong file."""
        return Config(
            timers=self.timers(),
            server_limits=self.limits(),
            cluster=ClusterSecurity(
                secret=None if self.secret_file is None else load_secret(self.secret_file),
                signing_key=self.signing_key(),
                server_keys=self.server_keys(),
                tls=self.tls(),
                insecure=self.insecure,
            ),
            seed=self.seed,
        )

    def limits(self) -> ServerLimits:
        """Return the limits of the server."""
        return ServerLimits(
            self.max_clients,
            self.announces_per_second,
            self.lookups_per_second,
            self.data_per_second,
            self.max_answers,
            self.max_connections,
            self.max_handshakes,
            self.handshake_timeout,
            self.stun_per_second,
        )

    def signing_key(self) -> ServerKey | None:
        """Return the signing key; None without a file. Raises ``SettingsError``."""
        return None if self.signing_key_file is None else load_server_key(self.signing_key_file)

    def server_keys(self) -> frozenset[bytes]:
        """Return the public keys of accepted servers and clusters. Raises ``SettingsError``."""
        return _public_keys(self.server_key, self.server_key_file)

    def tls(self) -> Tls | None:
        """Return the certificates; None without TLS. Raises ``SettingsError``."""
        if not (self.tls_ca or self.tls_cert or self.tls_key or self.tls_mutual):
            return None
        return Tls(self.tls_ca, self.tls_cert, self.tls_key, self.tls_mutual)

    def admit(self) -> Callable[[Peer], bool]:
        """Return the predicate that admits clients. Raises ``SettingsError`` for wrong keys."""
        if not self.allow_key and self.allow_file is None:
            return everybody
        return allow_only(_public_keys(self.allow_key, self.allow_file))


SOURCES: Final = Sources(ServerSettings, "SPHTP_SERVER_")


def _public_keys(keys: Iterable[str], file: Path | None) -> frozenset[bytes]:
    listed = frozenset() if file is None else load_public_keys(file)
    return listed.union(map(parse_key, keys))


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
