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
    recover: bool = True
    """What the stream does not repair is fetched over TCP, if the source keeps it."""
    settings: StreamSettings = field(default_factory=StreamSettings)
    """Timers and limits of this receiver, by default those of one network."""
    interface: str = "127.0.0.1"
    """An address of this machine, on the network where a multicast group is to be joined."""

    def __post_init__(self) -> None:
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
