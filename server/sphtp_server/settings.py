"""What can be set about a server, as data: a field is a flag, a variable and a key of the file."""

import ipaddress
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sphtp import ControlTimers, ServerAddress, ServerLimits, ServerOptions
from sphtp.core.control.limits import MAX_CLIENTS
from sphtp.errors import SettingsError
from sphtp_server.logs import LogFormat, LogLevel
from sphtp_server.sources import Sources

_TIMERS: Final = ControlTimers()
_LIMITS: Final = ServerLimits()


def _address(text: object) -> object:
    try:
        return str(ServerAddress.parse(text)) if isinstance(text, str) else text
    except SettingsError as error:
        raise ValueError(str(error)) from error


Address = Annotated[str, BeforeValidator(_address)]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(BaseModel):
    """The settings of one server; times are in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
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
        (), description="Address of another server of the cluster, tcp://host:8764; repeatable."
    )
    new: bool = Field(
        False,
        description="This cluster starts now and nobody holds an id yet, so do not wait. Without "
        "it a server that finds no other waits two expiries before it admits anybody.",
    )
    insecure: bool = Field(
        False, description="Listen on more than loopback although nothing is authenticated yet."
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
        if not self.insecure and not _is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is more than loopback, and nothing is authenticated yet: "
                "choose a loopback address, or say --insecure"
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
        return ServerAddress.parse(f"tcp://{host}:{self.pub_port}{second}")

    def options(self) -> ServerOptions:
        """Return what the library needs to know."""
        return ServerOptions(
            bind=self.bind(),
            advertise=ServerAddress.parse(self.advertise) if self.advertise else None,
            join=tuple(ServerAddress.parse(address) for address in self.join),
            new_cluster=self.new,
            timers=self.timers(),
            limits=ServerLimits(max_clients=self.max_clients),
            seed=self.seed,
        )


SOURCES: Final = Sources(ServerSettings, "SPHTP_SERVER_")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
