"""What became of each message: told once, and right."""

import gc

import pytest

from sphtp.core.channel.receipts import Outcome, Receipts, Ticket


def added(*tickets: Ticket) -> Receipts:
    open_ = Receipts()
    for ticket in tickets:
        open_.add(ticket)
    return open_


def settled(tickets: Receipts) -> list[Ticket]:
    found = []
    while (ticket := tickets.poll_settled()) is not None:
        found.append(ticket)
    return found


def test_a_ticket_is_delivered_when_all_its_parts_are_acked() -> None:
    ticket = Ticket(1.0)
    tickets = added(ticket)
    ticket.parts = 3
    for _ in range(2):
        tickets.acked(2.0, [ticket])
        assert settled(tickets) == []
    tickets.acked(2.5, [ticket])
    assert settled(tickets) == [ticket]
    assert (ticket.outcome, ticket.settled_at) == (Outcome.DELIVERED, 2.5)
    assert settled(tickets) == []


def test_what_is_settled_stays_so() -> None:
    ticket = Ticket(0.0)
    tickets = added(ticket)
    tickets.settle(1.0, [ticket], Outcome.LOST)
    tickets.acked(2.0, [ticket])
    tickets.close(3.0, Outcome.CLOSED)
    assert settled(tickets) == [ticket]
    assert (ticket.outcome, ticket.settled_at) == (Outcome.LOST, 1.0)


def test_tickets_expire_in_the_order_of_their_deadlines() -> None:
    late, early, never = Ticket(0.0, deadline=3.0), Ticket(0.0, deadline=1.0), Ticket(0.0)
    tickets = added(late, never, early)
    assert tickets.deadline == 1.0
    assert list(tickets.expire(0.9)) == []
    assert list(tickets.expire(1.0)) == [early]
    assert tickets.deadline == 3.0
    assert list(tickets.expire(9.0)) == [late]
    assert tickets.deadline is None
    assert [ticket.outcome for ticket in settled(tickets)] == [Outcome.EXPIRED] * 2
    assert never.outcome is None


def test_a_message_that_arrived_does_not_expire() -> None:
    ticket = Ticket(0.0, deadline=1.0)
    tickets = added(ticket)
    tickets.acked(0.5, [ticket])
    assert tickets.deadline is None
    assert list(tickets.expire(2.0)) == []
    assert ticket.outcome is Outcome.DELIVERED


def test_deadlines_of_what_is_settled_are_forgotten() -> None:
    """Although an earlier one is open, before which they never come up."""
    early = Ticket(0.0, deadline=10.0)
    tickets = added(early)
    late = [Ticket(0.0, deadline=1e6) for _ in range(5000)]
    for ticket in late:
        tickets.add(ticket)
        tickets.acked(1.0, [ticket])
        tickets.poll_settled()
    assert tickets.deadline == 10.0
    del ticket
    late.clear()
    kept = [it for it in gc.get_objects() if isinstance(it, Ticket) and it.deadline == 1e6]
    assert len(kept) < 200
    assert list(tickets.expire(10.0)) == [early]


def test_the_end_settles_all_that_are_open() -> None:
    row = [Ticket(0.0) for _ in range(3)]
    tickets = added(*row)
    tickets.acked(1.0, row[1:2])
    tickets.close(2.0, Outcome.CLOSED)
    assert settled(tickets) == [row[1], row[0], row[2]]
    tickets.close(3.0, Outcome.CLOSED)
    assert settled(tickets) == [], "none of them again"


@pytest.mark.parametrize(
    ("ticket", "is_special"),
    [
        (Ticket(0.0), False),
        (Ticket(0.0, deadline=0.0), True),
        (Ticket(0.0, copies=1), True),
    ],
)
def test_what_is_special(ticket: Ticket, is_special: bool) -> None:
    assert ticket.is_special == is_special
