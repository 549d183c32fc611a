"""Datagrams in a row mean what they mean one by one, whoever made them."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import (
    RUN_LAYOUT,
    FrameKind,
    Header,
    asks_for_ack,
    decode_data_untrusted,
    encode_data,
)
from sphtp.core.channel.gate.endpoint import SealedEndpoint
from sphtp.core.channel.packet import decode_packet_untrusted
from sphtp.core.channel.received_packets import Arrival, ReceivedPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.core.serial import wrap
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT
from tests.core.channel.rows import Script, scripts

STARTS = (0, 32767, 65535, 2**32 - 1)
# Both sides have sent a few packets when the rows begin.
BEFORE = 8


class Receiver:
    """The right side of a pair, of which the left one has fallen silent."""

    def __init__(self, **settings: Any) -> None:
        self.pair = Pair(1, settings=ChannelSettings(**settings))
        left, self.connection = self.pair.open()
        self.first_id = left._settings.first_sequence
        self.pair.run(0.5)
        assert self.connection.port.transport is not None
        self.transport = self.connection.port.transport
        self.next = self.transport._received.highest + 1
        self.pair.network.set_default(Faults(blocked=True))
        for number in range(BEFORE):
            self.pair.send(self.connection, bytes([number]))
        self.received: list[bytes] = []
        # Packets by their 16 bits, as acks name them.
        acks = self.transport._received
        known = range(acks._window.bit_length())
        self.accepted = {wrap(acks.highest - n) for n in known if acks._window >> n & 1}
        self.asking: set[int] = set()
        self.acked: set[int] = set()

    @property
    def endpoint(self) -> Endpoint | SealedEndpoint:
        return self.pair.right

    def datagrams(self, script: Script) -> list[bytes]:
        return script.datagrams(self.connection.connection_id, self.next, self.first_id)

    def take(self, datagrams: list[bytes], source: Address = LEFT, *, in_rows: bool) -> None:
        if not in_rows:
            for datagram in datagrams:
                self.take_one(datagram, source)
            return
        for row in rows_of(datagrams):
            joined = Datagrams(source, b"".join(row), len(row[0]) or 1)
            self.endpoint.handle_row_untrusted(self.pair.now, joined)

    def take_one(self, datagram: bytes, source: Address) -> None:
        """Let one arrive, and note whether it was accepted, and asks for an ack."""
        acks = self.transport._received
        before = acks.highest, acks._window
        self.endpoint.handle_datagram_untrusted(self.pair.now, source, datagram)
        if (acks.highest, acks._window) != before:
            packet = decode_packet_untrusted(datagram)
            self.accepted.add(packet.header.sequence)
            if asks_for_ack(packet.frames):
                self.asking.add(packet.header.sequence)

    def drain(self, after: float = 0.0) -> None:
        """Let leave what has to, and read what is there."""
        self.endpoint.touch(self.connection)
        while (transmit := self.endpoint.poll_transmit(self.pair.now + after)) is not None:
            for datagram in transmit.datagrams:
                header = decode_data_untrusted(datagram)
                bits = header.ack_bits
                self.acked |= {wrap(header.ack - n) for n in range(32) if bits >> n & 1}
        self.received += self.pair.receive(self.connection)

    def state(self) -> dict[str, Any]:
        figures = asdict(self.connection.port.statistics())
        # How many packets carried acks back is the one thing that may differ.
        del figures["sent"], figures["bytes_sent"]
        transport = self.transport
        return figures | {
            "messages": self.received,
            "counters": asdict(self.endpoint.counters),
            "acks": (transport._received.highest, transport._received._window),
            "credit": transport.receive_queue.credit.allowed,
            "in flight": transport.send_side.recovery.bytes_in_flight,
            "state": self.connection.state,
        }

    def verdicts(self) -> dict[str, Any]:
        """What acks change; what looked like a loss between two of them may differ."""
        state = self.state()
        names = ("received", "malformed", "forged_acks", "waiting", "acks")
        return {name: state[name] for name in names}


def rows_of(datagrams: list[bytes]) -> list[list[bytes]]:
    """Divide datagrams as a kernel joins them: of one size, of which the last may be smaller."""
    rows: list[list[bytes]] = []
    for datagram in datagrams:
        fits = rows and len(rows[-1][-1]) == len(rows[-1][0]) and datagram
        if fits and len(datagram) <= len(rows[-1][0]):
            rows[-1].append(datagram)
        else:
            rows.append([datagram])
    return rows


def both(first: int, **settings: Any) -> tuple[Receiver, Receiver]:
    return (
        Receiver(first_sequence=max(first - 20, 0), **settings),
        Receiver(first_sequence=max(first - 20, 0), **settings),
    )


limits = st.fixed_dictionaries(
    {
        "receive_buffer": st.sampled_from((8, 64, 1024)),
        "ack_every": st.sampled_from((1, 2, 16)),
        "ack_delay": st.sampled_from((0.0, 0.01)),
        "max_message": st.sampled_from((100, 2000)),
        "max_datagram": st.sampled_from((256, 1200)),
    }
)


# The second packet is malformed, and the last one cut to a header, which asks for no ack. One by
# one, an early ack leaves before the last but one; in rows, before the last, which none then names.
LAST_ASKS_FOR_NO_ACK = Script(
    18, 0, 0, FrameKind.RUN, length=10, count=3, flips=[(1, 0, 1)], cut=RUN_LAYOUT.size + 30
)
# Together they are longer than any ack reaches back, and so is the last one alone.
LONG_ROWS = [Script(n, at, at, FrameKind.RUN, length=10) for n, at in ((16, 0), (14, 16), (40, 30))]
ROOM = {"receive_buffer": 1024, "max_message": 100, "ack_every": 16, "ack_delay": 0.01}


@given(st.sampled_from(STARTS), limits, st.lists(st.tuples(scripts(), st.booleans()), max_size=4))
@example(0, ROOM, [(LAST_ASKS_FOR_NO_ACK, False)])
@example(0, ROOM, [(script, False) for script in LONG_ROWS])
def test_a_row_does_what_its_datagrams_do(
    first: int, limits: dict[str, Any], parts: list[tuple[Script, bool]]
) -> None:
    together, alone = both(first, receive_buffer_bytes=10**6, **limits)
    for part, drains in parts:
        datagrams = together.datagrams(part)
        together.take(datagrams, in_rows=True)
        alone.take(datagrams, in_rows=False)
        if drains:
            together.drain()
            alone.drain()
        assert together.state() == alone.state()
    together.drain()
    alone.drain()
    assert together.state() == alone.state()
    # Those whose acks could wait for company are acked by then. What asks for no ack is named
    # by one that leaves after it, if any does.
    for side in (together, alone):
        side.drain(after=0.02)
        assert alone.asking <= side.acked <= alone.accepted


@given(
    st.sampled_from(STARTS),
    st.lists(st.tuples(st.booleans(), st.integers(1, 20)), min_size=1, max_size=60),
    st.sampled_from((0, 0, 1, 30, 30_000)),
)
def test_acks_in_a_row_ack_what_they_do_one_by_one(
    first: int, script: list[tuple[bool, int]], lie: int
) -> None:
    """Of packets some of which arrived, as their receiver acks them; the last ack may be a lie."""
    together, alone = both(first)
    for side in (together, alone):
        side.connection.port.send_many([bytes(900)] * 40)
        side.pair.touch(side.connection)
    at, end = together.first_id, together.transport._sent_packets.next_sequence
    peer, datagrams = ReceivedPackets(at), list[bytes]()
    for sequence, (arrives, step) in enumerate(script, together.next):
        if arrives and peer.arrival(at) is Arrival.FRESH:
            peer.received(at)
        at = min(at + step, end - 1)
        header = Header(wrap(sequence), *peer.ack())
        datagrams.append(encode_data(together.connection.connection_id, header))
    last = decode_data_untrusted(datagrams[-1])
    forged = last._replace(ack=wrap(last.ack + lie))
    datagrams[-1] = encode_data(together.connection.connection_id, forged)
    together.take(datagrams, in_rows=True)
    alone.take(datagrams, in_rows=False)
    assert together.verdicts() == alone.verdicts()
    if not lie:
        # Else what a lie acks may have looked lost to who took it last.
        assert together.state()["in flight"] == alone.state()["in flight"]


def test_acks_far_apart_are_no_more_work_in_a_row() -> None:
    """As one number their bits would be as many as the packets between them."""
    side = Receiver()
    to = side.connection.connection_id
    datagrams = [encode_data(to, Header(n, n * 64 & 0xFFFF, 2**32 - 1)) for n in range(1, 5000)]
    side.take(datagrams, in_rows=True)
    figures = side.connection.port.statistics()
    assert figures.received + figures.malformed > 4998
    assert figures.forged_acks > 2000


def test_an_unknown_version_in_a_row_is_malformed() -> None:
    side = Receiver()
    script = Script(5, 1, 0, FrameKind.FRAGMENT, 10, total=100)
    side.take([b"\0" + datagram[1:] for datagram in side.datagrams(script)], in_rows=True)
    assert side.endpoint.counters.malformed == 5
    side.take([b"", b""], in_rows=True)
    assert side.endpoint.counters.malformed == 7


@pytest.mark.parametrize("in_rows", [True, False])
def test_rows_for_nobody_or_from_elsewhere_are_counted_by_the_datagram(in_rows: bool) -> None:
    side = Receiver()
    script = Script(5, 1, 0, FrameKind.FRAGMENT, 10, total=100)
    side.take(script.datagrams(side.connection.connection_id ^ 1, 0, 0), in_rows=in_rows)
    assert side.endpoint.counters.unknown == 5
    side.take(side.datagrams(script), ("10.9.9.9", 1), in_rows=in_rows)
    assert side.connection.port.statistics().foreign_address == 5
