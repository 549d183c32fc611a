"""What a subscription wants."""

from dataclasses import dataclass, field

from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.subscription import ALL
from sphtp.errors import SettingsError
from sphtp.shell.streams.group import is_ipv4


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is wanted of a topic; raises ``SettingsError``, naming it, for what cannot be."""

    ordered: bool = True
    """Messages come in the order of their sending; else as they arrive, each at most once."""
    late_join: bool | int = False
    """Messages sent before: all that the source keeps, or as many of the last ones."""
    after: int | None = None
    """Every message after the one with this number, or its loss: for whoever comes back to a source
    that it has read before. Takes the place of ``late_join``."""
    session: int | None = None
    """Whose numbers these are: the ``session`` of the stream that was read; None to ask nobody."""
    numbered: bool = False
    """Messages come as ``StreamMessage``, with their numbers."""
    recover: bool = True
    """What the stream does not repair is fetched over TCP, if the source keeps it."""
    settings: StreamSettings = field(default_factory=StreamSettings)
    """Timers and limits of this receiver, by default those of one network."""
    interface: str = "127.0.0.1"
    """An address of this machine, on the network where a multicast group is to be joined."""

    def __post_init__(self) -> None:
        if self.after is not None and (self.late_join or self.after < -1):
            wrong = f"after is {self.after} and late_join {self.late_join}"
            raise SettingsError(f"{wrong}; allowed is one of them, and after -1 or more")
        if self.late_join < 0:
            raise SettingsError(f"late_join is {self.late_join}; allowed is 0 or more, or a bool")
        if not is_ipv4(self.interface, multicast=False):
            raise SettingsError(f"interface is {self.interface!r}; allowed is an IPv4 address")

    @property
    def wanted(self) -> int:
        """How many messages sent before, at most."""
        if isinstance(self.late_join, bool):
            return ALL if self.late_join else 0
        return self.late_join
