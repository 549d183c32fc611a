"""Counters, by name, of dropped or refused messages and of other rare events."""

from collections import Counter
from enum import StrEnum


class Count(StrEnum):
    """The names of the counters; most count messages or connections, dropped or refused."""

    MALFORMED = "malformed"
    OVERSIZE = "oversize"
    FOREIGN = "foreign"
    UNKNOWN_COMMAND = "unknown_command"
    REFUSED_BY_STATE = "refused_by_state"
    STALE_NONCE = "stale_nonce"
    NOT_REGISTERED = "not_registered"
    FOREIGN_KEY = "foreign_key"
    FOREIGN_PIPE = "foreign_pipe"
    UNVOUCHED = "unvouched"
    REPLAYED = "replayed"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown_key"
    UNPROVEN = "unproven"
    OVER_MAX_CLIENTS = "over_max_clients"
    OVER_ANNOUNCES_PER_SECOND = "over_announces_per_second"
    OVER_LOOKUPS_PER_SECOND = "over_lookups_per_second"
    OVER_DATA_PER_SECOND = "over_data_per_second"
    OVER_CHECKS_PER_SECOND = "over_checks_per_second"
    OVER_STUN_PER_SECOND = "over_stun_per_second"
    OVER_MAX_ANSWERS = "over_max_answers"
    OVER_STATUS_ANSWERS = "over_status_answers"
    OVER_TIME_ANSWERS = "over_time_answers"
    OVER_MAX_CONNECTIONS = "over_max_connections"
    OVER_MAX_HANDSHAKES = "over_max_handshakes"
    OVER_HANDSHAKE_TIMEOUT = "over_handshake_timeout"
    HANDSHAKES_FAILED = "handshakes_failed"
    OUT_OF_DESCRIPTORS = "out_of_descriptors"
    OVER_MAX_PEERS = "over_max_peers"
    UNDIALABLE = "undialable"
    DENIED = "denied"
    TOO_MANY = "too_many"
    OVERSLEPT = "overslept"


class ControlCounters:
    """The counters of one program, by name. A name that was never counted has the count 0."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add ``count`` to the counter ``name``."""
        self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, without those that are zero."""
        return {str(name): count for name, count in sorted(self._counts.items())}
