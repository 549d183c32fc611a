"""What a soak did, in numbers."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counts of a conversation, both directions together; ``seconds`` of virtual time."""

    seed: int
    seconds: float
    sent: Counter[str]
    came: Counter[str]
    outcomes: Counter[str]
    packets: int
    resent: int
    lost: int
    duplicated: int
    cuts: int
    held_back: int
    digest: str

    def __str__(self) -> str:
        return (
            f"{self.seconds / 3600:.2f} h, {self.sent.total():,} messages ({_list(self.sent)}; "
            f"came: {_list(self.came)}; receipts: {_list(self.outcomes)}; "
            f"no room for {self.held_back:,}), {self.packets:,} packets, {self.lost:,} lost, "
            f"{self.duplicated:,} doubled, {self.resent:,} sent again, {self.cuts} cuts; "
            f"trace {self.digest}, seed {self.seed}"
        )


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name.lower()}" for name, count in sorted(counts.items()))
