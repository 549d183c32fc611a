"""The periods of the control plane, in seconds."""

from dataclasses import dataclass

from sphtp.core.entropy import Entropy
from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ControlTimers:
    """When to speak, and when to stop waiting (seed: "about every second", "a particular time").

    ``heartbeat`` and ``expiry`` should be the same at all servers and clients of a cluster.
    Raises ``SettingsError`` when a period is wrong or contradicts another.
    """

    heartbeat: float = 1.0
    """Seconds between two heartbeats, or two announcements."""
    jitter: float = 0.1
    """Each heartbeat comes up to this share earlier or later, so that crowds fall out of step."""
    expiry: float = 10.0
    """Seconds of silence after which a server or a client is given up."""
    announce_deadline: float = 3.0
    """Seconds to wait for every server's answer before trying another id."""
    backoff: float = 1.0
    """Longest pause, in seconds, between withdrawing an id and announcing the next one."""

    def __post_init__(self) -> None:
        longest = self.heartbeat * (1 + self.jitter)
        checks = {
            f"heartbeat is {self.heartbeat:g}; it must be more than 0": self.heartbeat > 0,
            f"jitter is {self.jitter:g}; it must be at least 0 and less than 1": (
                0 <= self.jitter < 1
            ),
            f"expiry is {self.expiry:g}; it must be more than twice the longest heartbeat "
            f"interval, {longest:g}": self.expiry > 2 * longest,
            f"announce_deadline is {self.announce_deadline:g}; it must be at least one heartbeat, "
            f"{self.heartbeat:g}": self.announce_deadline >= self.heartbeat,
            f"backoff is {self.backoff:g}; it must not be negative": self.backoff >= 0,
        }
        wrong = [rule for rule, holds in checks.items() if not holds]
        if wrong:
            raise SettingsError(f"control timers: {'; '.join(wrong)}")

    @property
    def reconnect(self) -> float:
        """Seconds that a client whose connection has ended has to be heard through another one.

        The bus dials again after 0.1, 0.3, 0.7 and 1.5 s at the latest, and then says hello at
        once; a plain SphTP client has its next heartbeat to say.
        """
        return max(1.5, 1.5 * self.heartbeat)

    @property
    def joining(self) -> float:
        """Seconds a restarted server waits when nobody gives it a snapshot."""
        return 2 * self.expiry

    def next_heartbeat(self, entropy: Entropy) -> float:
        """Draw the seconds until the next heartbeat."""
        return self.heartbeat * entropy.uniform(1 - self.jitter, 1 + self.jitter)

    def next_backoff(self, entropy: Entropy) -> float:
        """Draw the seconds to pause before the next id."""
        return entropy.uniform(0, self.backoff)
