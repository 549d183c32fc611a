"""What the tests of acks, loss detection and path share: batches, and which packets are meant."""

from collections.abc import Iterable

from sphtp.core.channel.sent_packets import FragmentRun, PacketSubset, SentBatch


def batch_of(number: int, sequence: int, sent_at: float = 0.0, size: int = 100) -> SentBatch:
    """Packets that left together, all of which ask for an ack."""
    return SentBatch(sequence, sent_at, size, FragmentRun(0, 0, bytes(2 * number), 0, 1, number))


def single(
    sequence: int, sent_at: float = 0.0, size: int = 100, *, eliciting: bool = True
) -> SentBatch:
    """A packet that left alone."""
    return SentBatch(sequence, sent_at, size, eliciting=eliciting)


def sequences(subsets: Iterable[PacketSubset]) -> list[int]:
    """The packets meant, oldest first."""
    return [sequence for subset in subsets for sequence in subset.sequences]


def acked(packets: Iterable[SentBatch]) -> list[PacketSubset]:
    """What the ack system gives when it takes single packets, or whole batches, out."""
    subsets = [PacketSubset(it, (1 << it.number) - 1) for it in packets]
    for batch, bits in subsets:
        batch.acked |= bits
    return subsets
