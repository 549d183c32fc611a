"""What is left in memory when all is said: nothing that grows with what was."""

import gc
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sphtp.core.channel.frames import BUFFER, Fragment, Messages, Unreliable
from sphtp.core.channel.queued_messages import FragmentedMessage
from sphtp.core.channel.reassembly import Reassembly
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.send_lane import MessageRun
from sphtp.core.channel.send_queue import Redundancy
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.sent_packets import FragmentRun, SentBatch, SentFrame
from tests.reach import reach

if TYPE_CHECKING:
    from tests.soak.conversation import Conversation

GONE: tuple[type, ...] = (Reassembly, Messages, Fragment, Unreliable, MessageRun, FragmentedMessage)
"""Of these nothing is left: messages, and parts of them."""

KEPT: tuple[type, ...] = (SentBatch, SentFrame, Ticket)
"""These a packet that was lost still names, for the case that its ack comes: settled, and empty."""

BLOCKS_PER_PACKET = 24
"""A packet remembered: itself, its numbers, its stamp and theirs, and one empty piece."""

BLOCKS_SPARE = 2000
"""What the interpreter and the books may keep that has nothing to do with the channel."""


@dataclass(frozen=True, slots=True)
class Residue:
    """What is there when nothing is under way: blocks of memory, and what packets still name."""

    blocks: int
    packets: int
    most_packets: int
    named: int

    def check_no_more_than(self, before: "Residue") -> str:
        """Raise ``AssertionError`` if this is more than packets remembered account for."""
        allowed = BLOCKS_SPARE + BLOCKS_PER_PACKET * (self.packets + self.named)
        grown = self.blocks - before.blocks
        text = f"{before.blocks:,} blocks of memory before, {self.blocks:,} after"
        assert grown <= allowed, f"{text}: {grown:,} more, at most {allowed:,} are accounted for"
        return (
            f"{text} (at most {allowed:,} more), {self.packets} packets remembered (at most "
            f"{self.most_packets:,})"
        )


def check_residue(conversation: "Conversation") -> Residue:
    """See that queues are empty and that no message is held anywhere."""
    riding: set[SentFrame] = set()
    most_packets = 0
    for speaker in conversation.speakers:
        port = speaker.connection.port
        send_side, receive_side = port.send_side, port.receive_side
        assert send_side is not None
        assert receive_side is not None
        _check_empty(send_side, receive_side)
        # Those acked meanwhile go when the next packet leaves that they could ride in.
        for copies in reach(send_side.send_queue):
            if isinstance(copies, Redundancy):
                riding.update(copies.resting, copies.due)
        # An ack may still name those near the newest acked, and all that left since.
        acks = send_side.sent_packets
        most_packets += BUFFER + acks.next_sequence - acks.newest_acked
    gc.collect()
    endpoints = conversation.left, conversation.right
    objects = [it for it in reach(*endpoints) if type(it) in GONE + KEPT]
    census = Counter(type(it) for it in objects)
    left_over = {kind.__name__: census[kind] for kind in GONE if census[kind]}
    assert not left_over, f"still there: {left_over}; seed {conversation.seed}"
    packets = [it for it in objects if isinstance(it, SentBatch)]
    assert len(packets) <= most_packets, f"{len(packets)} remembered, at most {most_packets}"
    frames = set(riding)
    for packet in packets:
        contents = packet.contents
        if isinstance(contents, FragmentRun):
            assert contents.acked
            assert not contents.tickets
            assert not contents.payload
            frames.update(contents.frames())
        else:
            frames.update(frame for content in contents for frame in content)
    assert all(frame.acked and not frame.tickets for frame in frames)
    assert not census[Ticket], "named by nothing"
    assert len(frames) == census[SentFrame], "named by nothing"
    residue = len(packets), most_packets, len(frames)
    del objects, packets, frames, riding
    return Residue(sys.getallocatedblocks(), *residue)


def _check_empty(send_side: SendSide, receive_side: ReceiveSide) -> None:
    assert send_side.send_queue.idle
    assert receive_side.receive_queue.held == len(receive_side.receive_queue) == 0
    assert send_side.receipts.deadline is None
    assert send_side.receipts.poll_settled() is None
