"""What the delivery of a topic counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """What a topic's delivery counts.

    ``delivered`` counts messages; all others count numbers, of which a message in parts has one for
    each. ``duplicates`` came although they had been told, or told as lost; ``left`` were not kept
    because they were too far ahead while history was fetched; ``refused`` counts records that
    contradict earlier ones. ``gaps`` and ``wanted`` are missing,
    the latter from the history; ``waiting`` is what waits for them, ``waiting_bytes`` likewise.
    """

    delivered: int
    lost: int
    duplicates: int
    left: int
    refused: int
    gaps: int
    wanted: int
    waiting: int
    waiting_bytes: int
