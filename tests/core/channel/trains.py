"""What the tests of acks, recovery and governor share: trains, and which packets are meant."""

from collections.abc import Iterable

from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.sent_packets import Hit, SentBatch


def train(number: int, sequence: int, sent_at: float = 0.0, size: int = 100) -> SentBatch:
    """Packets that left together, all of which ask for an ack."""
    run = FragmentRun(0, 0, bytes(2 * number), 0, 1, number, ())
    return SentBatch(sequence, sent_at, size, run=run)


def single(
    sequence: int, sent_at: float = 0.0, size: int = 100, *, eliciting: bool = True
) -> SentBatch:
    """A packet that left alone."""
    alone = SentBatch(sequence, sent_at, size)
    alone.eliciting = eliciting
    return alone


def sequences(hits: Iterable[Hit]) -> list[int]:
    """The packets meant, oldest first."""
    return [
        hit.train.last - bit
        for hit in hits
        for bit in reversed(range(hit.train.number))
        if hit.bits >> bit & 1
    ]


def acked(packets: Iterable[SentBatch]) -> list[Hit]:
    """What the ack system gives to recovery when it takes single packets, or whole trains, out."""
    hits = [Hit(it, (1 << it.number) - 1) for it in packets]
    for train, bits in hits:
        train.acked |= bits
    return hits
