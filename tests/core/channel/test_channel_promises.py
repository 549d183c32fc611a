"""Promises of the channel that no other test checks.

All promises, with their tests: docs/explanation/channel-promises.md.
"""

import pytest

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from tests.core.channel.talk import follow

ONE_WAY = 0.02


@pytest.mark.parametrize("pace", [1, 60, 1000])
def test_acks_come_at_every_pace_without_a_word_from_the_other_side(pace: int) -> None:
    pair = Pair(1, Faults(delay=ONE_WAY))
    left, right = pair.open()
    tickets = []
    for _ in range(300):
        tickets.append(follow(left, bytes(64), pair.now))
        pair.touch(left)
        pair.run(1 / pace)
    pair.run(1)
    assert {ticket.outcome for ticket in tickets} == {Outcome.DELIVERED}
    waits = [(ticket.settled_at or 0.0) - ticket.sent_at for ticket in tickets]
    assert max(waits) < 2 * ONE_WAY + ChannelSettings().ack_delay + 0.002
    assert left.port.statistics().lost == left.port.statistics().resent == 0
    assert right.port.statistics().messages_sent == 0


def test_no_datagram_is_over_1200_bytes_before_the_path_has_proved_to_take_it() -> None:
    pair = Pair(1, Faults(delay=ONE_WAY))
    sizes: list[int] = []
    send = pair.network.send

    def measured(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        sizes.append(len(datagram))
        send(now, source, destination, datagram)

    pair.network.send = measured  # type: ignore[method-assign]
    left, _ = pair.open()
    left.port.send_many([bytes(1_000_000)])
    pair.touch(left)
    first = [size for size in sizes if size > 1200]
    assert len(sizes) > 10
    assert len(first) <= 1, "one probe, which carries no message"
    pair.run(ONE_WAY)
    assert max(sizes) == max([1200, *first]), "nothing has come back yet"


def test_a_channel_to_the_same_peer_starts_afresh() -> None:
    pair = Pair(1, Faults(delay=ONE_WAY, loss=0.3))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(5000)] * 50)
    assert left.port.statistics().loss > 0
    left.close(pair.now)
    pair.touch(left)
    pair.run(20)
    assert left.state is State.CLOSED

    pair.network.set_default(Faults(delay=ONE_WAY))
    again, _ = pair.open()
    assert again.connection_id != left.connection_id
    figures = again.port.statistics()
    assert (figures.rtt, figures.loss, figures.lost, figures.resent) == (None, 0, 0, 0)
    assert left.port.statistics().rtt is not None
