"""The books see what they are there to see."""

import pytest

from sphtp.core.channel.receipts import Outcome, Ticket
from tests.cases import each
from tests.soak.ledger import Ledger
from tests.soak.payloads import Kind, Stream, compose, identify

ORDERED, UNORDERED = Stream(Kind.ORDERED, 0), Stream(Kind.UNORDERED, 2)
ONCE, LATEST = Stream(Kind.UNRELIABLE, 0), Stream(Kind.SEQUENCED, 0)
TRAVEL = 1.0


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(TRAVEL)


def sent(ledger: Ledger, stream: Stream, count: int = 3) -> list[bytes]:
    return [ledger.compose(stream, 50) for _ in range(count)]


def settled(ticket: Ticket, outcome: Outcome, at: float = 1.0) -> Ticket:
    ticket.outcome, ticket.settled_at = outcome, at
    return ticket


def test_what_comes_as_it_was_sent_is_well(ledger: Ledger) -> None:
    for stream in (ORDERED, UNORDERED, ONCE, LATEST):
        for payload in sent(ledger, stream):
            ledger.hear(payload)
    ledger.hear(ledger.compose_empty())
    ledger.check_complete(0.0)
    assert ledger.came.total() == 13


@pytest.mark.parametrize("stream", [ORDERED, UNORDERED, ONCE, LATEST])
def test_a_repeat_is_seen(ledger: Ledger, stream: Stream) -> None:
    payload = sent(ledger, stream)[0]
    ledger.hear(payload)
    with pytest.raises(AssertionError, match="came twice"):
        ledger.hear(payload)


def test_an_empty_repeat_is_seen(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="empty message came twice"):
        ledger.hear(b"")


@pytest.mark.parametrize("stream", [ORDERED, UNORDERED])
def test_a_missing_message_is_seen(ledger: Ledger, stream: Stream) -> None:
    for payload in sent(ledger, stream)[:-1]:
        ledger.hear(payload)
    with pytest.raises(AssertionError, match="2 of 50 bytes is missing"):
        ledger.check_complete(0.0)


def test_a_missing_empty_message_is_seen(ledger: Ledger) -> None:
    ledger.compose_empty()
    with pytest.raises(AssertionError, match="1 empty messages are missing"):
        ledger.check_complete(0.0)


def test_disorder_is_seen_where_there_should_be_order(ledger: Ledger) -> None:
    first, second, _ = sent(ledger, UNORDERED)
    ledger.hear(second)
    ledger.hear(first)
    _, later, _ = sent(ledger, ORDERED)
    with pytest.raises(AssertionError, match="0 of 50 bytes is missing"):
        ledger.hear(later)
    first, second, _ = sent(ledger, LATEST)
    ledger.hear(second)
    with pytest.raises(AssertionError, match="came after a later"):
        ledger.hear(first)


def test_a_change_a_cut_and_an_invention_are_seen(ledger: Ledger) -> None:
    payload = sent(ledger, ORDERED)[0]
    with pytest.raises(AssertionError, match="was changed"):
        ledger.hear(payload[:-1] + bytes([payload[-1] ^ 1]))
    with pytest.raises(AssertionError, match="was cut"):
        ledger.hear(payload[:-1])
    with pytest.raises(AssertionError, match="nobody sends"):
        ledger.hear(b"?")
    with pytest.raises(AssertionError, match="never sent"):
        ledger.hear(compose(ORDERED, 99, 50))


def test_only_what_expired_may_be_missing(ledger: Ledger) -> None:
    ticket = Ticket(0.0, 0, deadline=0.5)
    ledger.compose(ORDERED, 50, ticket)
    after = ledger.compose(ORDERED, 50)
    ledger.settle(settled(ticket, Outcome.EXPIRED))
    ledger.hear(after)
    ledger.check_complete(0.0)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CLOSED])
def test_a_reliable_message_is_never_said_to_be_lost(ledger: Ledger, outcome: Outcome) -> None:
    ticket = Ticket(0.0)
    ledger.compose(ORDERED, 50, ticket)
    with pytest.raises(AssertionError, match=outcome.name):
        ledger.settle(settled(ticket, outcome))


def test_a_receipt_that_is_too_early_or_comes_twice_is_seen(ledger: Ledger) -> None:
    ticket = Ticket(0.0, 0, deadline=5.0)
    ledger.compose(ORDERED, 50, ticket)
    with pytest.raises(AssertionError):
        ledger.settle(settled(ticket, Outcome.EXPIRED, at=4.0))
    with pytest.raises(KeyError):
        ledger.settle(ticket)


def test_an_open_receipt_is_seen(ledger: Ledger) -> None:
    ledger.hear(ledger.compose(ORDERED, 50, Ticket(0.0)))
    with pytest.raises(AssertionError):
        ledger.check_complete(0.0)


def test_what_was_sent_once_is_awaited_while_it_may_come(ledger: Ledger) -> None:
    tickets = [Ticket(0.0), Ticket(0.0)]
    first, second = [ledger.compose(ONCE, 50, ticket) for ticket in tickets]
    for ticket in tickets:
        ledger.settle(settled(ticket, Outcome.ARRIVED))
    ledger.fade(1.0 + TRAVEL)
    ledger.hear(first)
    ledger.fade(1.1 + TRAVEL)
    assert ledger.unheard == 1, "it arrived, they say"
    with pytest.raises(AssertionError, match="too late"):
        ledger.hear(second)


@each("size", [6, 7, 200, 1 << 20, (1 << 20) + 5000, 3 << 20])
def test_messages_of_every_size_say_which_they_are(size: int) -> None:
    payload = compose(UNORDERED, 2**32 - 1, size)
    assert len(payload) == size
    assert identify(payload) == (UNORDERED, 2**32 - 1)
