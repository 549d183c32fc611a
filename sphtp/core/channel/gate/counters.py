"""What a gate counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class GateCounters:
    """Datagrams and handshakes at a gate; none of those dropped has changed anything.

    ``in_the_clear`` were not sealed; ``forged`` were sealed by nobody who has the key, or altered
    on their way; ``replayed`` had come before, or come from elsewhere. ``handshakes`` were begun by
    others and are counted after their cookie; ``handshakes_over_rate`` and
    ``handshakes_over_limit`` are those not answered because of ``handshakes_per_second`` and
    ``half_open``. ``strangers`` claimed an id that nobody introduced yet, ``denied`` were told that
    they are not wanted. A reset says that a peer has forgotten a channel; a path is what has
    changed when a peer's address has.
    """

    in_the_clear: int = 0
    forged: int = 0
    replayed: int = 0
    cookies_sent: int = 0
    handshakes: int = 0
    handshakes_over_rate: int = 0
    handshakes_over_limit: int = 0
    strangers: int = 0
    denied: int = 0
    resets_sent: int = 0
    resets_over_rate: int = 0
    resets_taken: int = 0
    resets_forged: int = 0
    paths_tried: int = 0
    paths_changed: int = 0
