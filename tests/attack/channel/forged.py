"""Datagrams in the clear that no honest peer sends: from the address of one, with its id."""

from collections.abc import Sequence
from typing import Any

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.frames import Frame, Header, encode_data, encode_frames
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Pair


def forge(
    to: Connection, frames: Sequence[Frame] = (), *, sequence: int = 50, ack: int = 0, bits: int = 0
) -> bytes:
    """A datagram as the peer of ``to`` could send it; left and right have sent one packet each."""
    return encode_data(to.connection_id, Header(sequence, ack, bits)) + encode_frames(frames)


def open_pair(**changes: Any) -> tuple[Pair, Connection, Connection]:
    pair = Pair(1, settings=ChannelSettings(**changes))
    left, right = pair.open()
    pair.run(0.5)
    return pair, left, right
