"""Config: the behaviour of nodes, clients and servers, in one object that all of them take.

Values of a single call are arguments of that call: addresses, data, a topic. The behaviour of a
program is in a ``Config``, which the program makes once and passes to all that it opens. Each part
of a ``Config`` checks its values when it is made.

A part whose module is loaded only on demand is None by default. None stands for the default values
of the part, or for no relay, no types of messages and no faults of datagrams. So a program that
opens a channel loads neither the control plane nor the streams.

The two sources of randomness that the shell passes to the core come first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from importlib import import_module
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final, Self

from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings, Lane
from sphtp.core.entropy import Entropy, Secrets
from sphtp.errors import SettingsError

if TYPE_CHECKING:
    from sphtp.core.channel.instrument import Instrument
    from sphtp.core.control.settings import ClientLimits, ControlTimers, ServerLimits
    from sphtp.core.messages import MessageCodec
    from sphtp.core.nat import TurnServer
    from sphtp.core.secure.signing import ServerKey
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.impairment import Impairment
    from sphtp.shell.tls import Tls


SECRETS: Final[Secrets] = SystemRandom()
"""The source of keys, tokens, cookies and nonces: the operating system, even with a ``seed``."""


def decisions(seed: int | None) -> Entropy:
    """Return the generator of ids, jitter and back-off. With a seed its numbers are repeatable."""
    return SystemRandom() if seed is None else Random(seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """The protection of control messages between servers and clients.

    Raises ``SettingsError`` for a ``secret`` that is not 32 bytes.
    """

    secret: bytes | None = field(default=None, repr=False)
    """The cluster's secret, 32 bytes. Messages without its MAC are dropped."""
    signing_key: "ServerKey | None" = field(default=None, repr=False)
    """The key that signs all messages of this server. Without signatures, every member of the
    cluster, which is every holder of the secret, can pretend to be a server.
    """
    server_keys: Collection[bytes] = ()
    """The public keys of accepted servers, or of clusters that certify servers.

    Empty by default: a client then accepts all servers. A server with a ``signing_key`` then
    accepts the servers that the same cluster key certifies; if its own key has no certificate, it
    accepts only that key. A server without one accepts all.
    """
    tls: "Tls | None" = None
    """The certificates for ``tls+tcp`` addresses."""
    insecure: bool = False
    """True lets a server listen on more than loopback with neither ``secret`` nor ``tls``."""

    def __post_init__(self) -> None:
        if self.secret is not None:
            # Loaded only where there is a secret.
            from sphtp.core.secure.vouch import require_secret

            require_secret(self.secret)


CHANNEL: Final = ChannelSettings()
UNPROTECTED: Final = ClusterSecurity()

_KINDS: Final[Mapping[str, str]] = {
    "channel": "sphtp.core.channel.settings ChannelSettings",
    "streams": "sphtp.core.stream.settings StreamSettings",
    "security": "sphtp.core.channel.security Security",
    "cluster": "sphtp.shell.config ClusterSecurity",
    "timers": "sphtp.core.control.settings ControlTimers",
    "client_limits": "sphtp.core.control.settings ClientLimits",
    "server_limits": "sphtp.core.control.settings ServerLimits",
    "impairment": "sphtp.shell.impairment Impairment",
    "relay": "sphtp.core.nat TurnServer",
    "limits": "sphtp.core.channel.security HandshakeLimits",
}
"""The module and the class of each part; ``limits`` is a part of ``security``."""

_ALWAYS: Final = ("channel", "cluster")
"""The parts that cannot be None."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """The behaviour of a node, a client or a server, fixed when that object is opened.

    ``dataclasses.replace`` makes a changed copy. Raises ``SettingsError`` for a part of another
    type; the parts raise it for values that are out of range.
    """

    channel: ChannelSettings = CHANNEL
    """Limits and timers of channels."""
    streams: "StreamSettings | None" = None
    """Timers and limits of sources and subscriptions; None for the defaults, which suit one LAN."""
    security: Security | None = SEALED
    """The identity of this node, and the peers that it admits.

    With None, channels are in the clear, and the peers need None, too. A client admits the peers
    that servers introduce. Its channels are always sealed, and it cannot have None here.
    """
    cluster: ClusterSecurity = UNPROTECTED
    """The protection of control messages between servers and clients."""
    timers: "ControlTimers | None" = None
    """The heartbeats, expiries and timeouts of servers and clients; None for the defaults."""
    client_limits: "ClientLimits | None" = None
    """The limits of a client; None for the defaults."""
    server_limits: "ServerLimits | None" = None
    """The limits of a server; None for the defaults."""
    messages: "MessageCodec | None" = None
    """The codec for the messages of all channels, streams and requests; see ``sphtp.messages``.

    Both sides need the same types. With None, a message is any value that msgpack carries, or a
    NumPy array.
    """
    instruments: "Sequence[Instrument]" = ()
    """The instruments that get the events of a node and its channels."""
    relay: "TurnServer | None" = None
    """The TURN server of a client, for peers to which there is no direct path through NATs.

    It needs the extra ``nat``.
    """
    impairment: "Impairment | None" = None
    """The faults of arriving datagrams, to try out a bad network; None for no faults."""
    seed: int | None = None
    """The seed of random choices, those of ``impairment`` included, to make them repeatable in
    tests. Keys, tokens and nonces do not depend on it.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "instruments", tuple(self.instruments))
        for each in fields(self):
            _check_part(each.name, getattr(self, each.name))

    def __repr__(self) -> str:
        changed = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the config for a plain mapping, such as the content of a file in TOML or JSON.

        Parts are mappings of their own: ``{"channel": {"timeout": 5.0}, "seed": 3}``. Raises
        ``SettingsError`` for a setting that does not exist, which the message names as in
        ``channel.timeout``. For a wrong value the message names the setting, and for a value of a
        wrong type at least the part.
        """
        made: Self = _build(cls, values, "")
        return made


def _check_part(name: str, value: object) -> None:
    if name in _KINDS:
        if value is None and name not in _ALWAYS:
            return
        kind = _kind_of(name)
        if not isinstance(value, kind):
            raise SettingsError(f"{name} is {value!r}; allowed is {_article(kind)}")
    elif name == "seed" and not (value is None or isinstance(value, int)):
        raise SettingsError(f"seed is {value!r}; allowed is a whole number")
    elif name == "messages" and not (value is None or hasattr(value, "encode_many")):
        raise SettingsError(f"messages is {value!r}; allowed is a codec of sphtp.messages")


def _article(kind: type[Any]) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _kind_of(name: str) -> type[Any]:
    module, _, kind = _KINDS[name].partition(" ")
    found: type[Any] = getattr(import_module(module), kind)
    return found


def _build(kind: type[Any], values: object, path: str) -> Any:
    """Make a part from a mapping of its settings."""
    if not isinstance(values, Mapping):
        raise SettingsError(f"{path or 'config'} is {values!r}; allowed is a mapping of settings")
    defaults = {each.name: each.default for each in fields(kind)}
    made = dict[str, Any]()
    for name, value in values.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in defaults:
            raise SettingsError(f"there is no setting {where}; allowed are {', '.join(defaults)}")
        made[name] = _convert(name, value, defaults[name], where)
    try:
        return kind(**made)
    except (TypeError, AttributeError) as error:
        # A value of a wrong type.
        raise SettingsError(f"{path or 'config'}: {error}") from error


def _convert(name: str, value: Any, default: object, where: str) -> Any:
    if name in _KINDS and value is not None and not is_dataclass(value):
        return _build(_kind_of(name), value, where)
    if name == "lanes":
        if not isinstance(value, list | tuple):
            raise SettingsError(f"{where} is {value!r}; allowed is a list of mappings")
        return tuple([_build(Lane, lane, where) for lane in value])
    if isinstance(default, Enum) and isinstance(value, str):
        kinds = type(default)
        if value.upper() not in kinds.__members__:
            names = ", ".join(one.lower() for one in kinds.__members__)
            raise SettingsError(f"{where} is {value!r}; allowed are {names}")
        return kinds[value.upper()]
    return value


DEFAULTS: Final = Config()
"""The config with the default of every setting."""
