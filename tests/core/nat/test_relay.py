"""An allocation at a relay: RFC 8656, and the long-term credential of RFC 8489, section 9.2."""

from collections.abc import Iterator
from random import Random

import pytest

from sphtp.core.datagrams import Address
from sphtp.core.nat import (
    BINDING_REFRESH,
    FAILED_AGAIN,
    FIRST_CHANNEL,
    LAST_CHANNEL,
    MOST_PERMISSIONS,
    PERMISSION_REFRESH,
    RELEASE,
    RelayAllocation,
    TurnMethod,
    TurnRequest,
    TurnServer,
)
from sphtp.errors import SettingsError

RELAYED, PEER = ("198.51.100.10", 50_000), ("203.0.113.1", 4)


def requests(allocation: RelayAllocation) -> Iterator[TurnRequest]:
    while (request := allocation.poll_request()) is not None:
        yield request


def allocated() -> RelayAllocation:
    allocation = RelayAllocation(Random(1))
    allocation.begin(0.0)
    (first,) = requests(allocation)
    assert (first.method, first.nonce) == (TurnMethod.ALLOCATE, b"")
    allocation.handle_error(0.1, first.transaction, 401, "Unauthorized", "realm", b"nonce")
    (second,) = requests(allocation)
    assert (second.method, second.realm, second.nonce) == (TurnMethod.ALLOCATE, "realm", b"nonce")
    allocation.handle_success(0.2, second.transaction, RELAYED, 600)
    return allocation


def drive(
    allocation: RelayAllocation, until: float, used: Address | None = None
) -> list[tuple[float, TurnRequest]]:
    """Answer all requests until a time; return them. Data goes to a peer, at each timeout."""
    made = list[tuple[float, TurnRequest]]()
    while (now := allocation.poll_timeout()) is not None and now <= until:
        if used is not None:
            allocation.channel_to(now, used)
        allocation.handle_timeout(now)
        for request in requests(allocation):
            made.append((now, request))
            allocation.handle_success(now, request.transaction)
    return made


def test_an_allocation_is_kept_with_its_permissions_and_channels() -> None:
    allocation = allocated()
    assert allocation.relayed == RELAYED
    allocation.permit(1.0, [PEER[0], PEER[0]])
    assert allocation.channel_to(1.0, PEER) is None
    permission, binding = requests(allocation)
    assert (permission.method, permission.peer) == (TurnMethod.CREATE_PERMISSION, (PEER[0], 0))
    assert (binding.method, binding.peer, binding.channel) == (
        TurnMethod.CHANNEL_BIND,
        PEER,
        FIRST_CHANNEL,
    )
    for request in (permission, binding):
        allocation.handle_success(1.0, request.transaction)
    assert (allocation.channel_to(1.1, PEER), allocation.peer_of(FIRST_CHANNEL)) == (
        FIRST_CHANNEL,
        PEER,
    )
    made = [(round(now), request.method) for now, request in drive(allocation, 700.0, PEER)]
    for method, period in (
        (TurnMethod.REFRESH, 300),
        (TurnMethod.CREATE_PERMISSION, PERMISSION_REFRESH),
        (TurnMethod.CHANNEL_BIND, BINDING_REFRESH),
    ):
        times = [now for now, each in made if each is method]
        assert times == [pytest.approx(period, abs=1), pytest.approx(2 * period, abs=2)], method


def bound(allocation: RelayAllocation, now: float, peer: Address) -> int:
    """Bind a channel; return its number."""
    allocation.channel_to(now, peer)
    (binding,) = requests(allocation)
    allocation.handle_success(now, binding.transaction)
    assert allocation.channel_to(now, peer) == binding.channel
    return binding.channel


def test_the_number_of_a_channel_without_data_gets_free() -> None:
    allocation, other = allocated(), ("203.0.113.2", 4)
    assert bound(allocation, 1.0, PEER) == FIRST_CHANNEL
    released = 1.0 + 2 * BINDING_REFRESH
    drive(allocation, released - 1, other)
    # It is bound once more, because data went to it before it was due for the first time.
    made = drive(allocation, released)
    assert TurnMethod.CHANNEL_BIND not in [it.method for _, it in made if it.peer == PEER]
    assert allocation.peer_of(FIRST_CHANNEL) == PEER
    assert bound(allocation, released, ("203.0.113.3", 4)) == FIRST_CHANNEL + 2
    drive(allocation, released + RELEASE + 1)
    assert allocation.peer_of(FIRST_CHANNEL) is None
    assert bound(allocation, released + RELEASE + 1, ("203.0.113.4", 4)) == FIRST_CHANNEL


def test_a_number_waits_for_a_relay_whose_answers_were_lost() -> None:
    allocation, asked, now = allocated(), 0.0, 299.0
    bound(allocation, 1.0, PEER)
    allocation.channel_to(now, PEER)
    while allocation.peer_of(FIRST_CHANNEL) is not None:
        now = allocation.poll_timeout() or now
        allocation.handle_timeout(now)
        for request in requests(allocation):
            if request.method is TurnMethod.CHANNEL_BIND:
                asked = now
            else:
                allocation.handle_success(now, request.transaction, RELAYED)
    # RFC 8656, section 12: 600 s until the relay forgets it, and 300 s for nobody.
    assert now - asked >= 900


def test_a_released_channel_is_bound_again_when_data_goes_to_it() -> None:
    allocation = allocated()
    bound(allocation, 1.0, PEER)
    drive(allocation, 700.0)
    assert bound(allocation, 700.0, PEER) == FIRST_CHANNEL
    assert allocation.channel_to(701.0, PEER) == FIRST_CHANNEL


def test_all_channels_may_be_in_use() -> None:
    allocation = allocated()
    peers = [("203.0.113.5", port) for port in range(1, LAST_CHANNEL - FIRST_CHANNEL + 3)]
    for peer in peers:
        allocation.channel_to(1.0, peer)
    asked = [it.channel for it in requests(allocation)]
    assert asked == list(range(FIRST_CHANNEL, LAST_CHANNEL + 1))
    assert allocation.channel_to(1.0, peers[-1]) is None


def test_a_stale_nonce_is_replaced() -> None:
    allocation = allocated()
    allocation.permit(1.0, [PEER[0]])
    (request,) = requests(allocation)
    allocation.handle_error(1.1, request.transaction, 438, "Stale Nonce", "realm", b"newer")
    (again,) = requests(allocation)
    assert (again.method, again.peer, again.nonce) == (request.method, request.peer, b"newer")


def test_a_wrong_password_is_tried_again_later() -> None:
    allocation = RelayAllocation(Random(1))
    allocation.begin(0.0)
    for nonce in (b"one", b"two"):
        (request,) = requests(allocation)
        allocation.handle_error(0.1, request.transaction, 401, "Unauthorized", "realm", nonce)
    assert list(requests(allocation)) == []
    assert (allocation.relayed, allocation.failure) == (None, "401 Unauthorized")
    assert allocation.poll_timeout() == pytest.approx(0.1 + FAILED_AGAIN)


def test_a_silent_relay_ends_the_allocation() -> None:
    allocation, sent = allocated(), 0
    while allocation.relayed is not None:
        now = allocation.poll_timeout()
        assert now is not None
        allocation.handle_timeout(now)
        sent += len(list(requests(allocation)))
    assert (allocation.failure, sent) == ("no answer", 7)


def test_permissions_are_bounded() -> None:
    allocation = allocated()
    allocation.permit(1.0, [f"10.0.{number // 250}.{number % 250}" for number in range(1000)])
    made = list(requests(allocation))
    for request in made:
        allocation.handle_success(1.0, request.transaction)
    assert len([it for _, it in drive(allocation, 250.0)]) <= MOST_PERMISSIONS


def test_urls_of_relays() -> None:
    assert TurnServer.parse("turn://me@turn.example", "x") == TurnServer("turn.example", "me", "x")
    assert TurnServer.parse("turn://me@[::1]:5", "x") == TurnServer("::1", "me", "x", 5)
    assert "x!" not in repr(TurnServer("turn.example", "me", "x!"))
    for url in ("turn.example", "turn://turn.example", "turn://me:x@host", "turn://me@host:99999"):
        with pytest.raises(SettingsError):
            TurnServer.parse(url, "x")
    with pytest.raises(SettingsError) as caught:
        TurnServer.parse("turn://me:hunter2@host", "x")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError):
        TurnServer("host", "me", "")


def test_what_the_relay_refuses_or_does_not_answer_is_requested_again() -> None:
    allocation = allocated()
    allocation.permit(1.0, [PEER[0]])
    allocation.channel_to(1.0, PEER)
    silent, refused = requests(allocation)
    allocation.handle_error(1.0, refused.transaction, 508, "Insufficient Capacity", "", b"")
    again = [(now, request.method) for now, request in drive(allocation, 1.0 + FAILED_AGAIN)]
    assert again.count((1.0 + FAILED_AGAIN, TurnMethod.CHANNEL_BIND)) == 1
    assert allocation.channel_to(40.0, PEER) == FIRST_CHANNEL
    assert silent.method is TurnMethod.CREATE_PERMISSION


def test_a_permission_without_an_answer_is_requested_again() -> None:
    allocation, times = allocated(), list[float]()
    allocation.permit(1.0, [PEER[0]])
    while (now := allocation.poll_timeout()) is not None and now < 200:
        times += [now for each in requests(allocation) if each.peer == (PEER[0], 0)]
        allocation.handle_timeout(now)
    # RFC 8489, section 6.2.1: seven requests, each with the time of the next one or of the failure.
    assert times[:7] == [1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 1 + 39.5]
    assert times[7] >= 1 + 39.5 + FAILED_AGAIN
    assert len(times) >= 2 * 7


def test_a_host_in_use_keeps_its_permission() -> None:
    allocation = allocated()
    for number in range(2 * MOST_PERMISSIONS):
        allocation.permit(1.0, ["10.0.0.1", f"10.0.1.{number}"])
    asked = [request.peer for request in requests(allocation)]
    assert asked.count(("10.0.0.1", 0)) == 1


def test_a_relay_that_falls_silent_ends_all_that_is_due_with_the_allocation() -> None:
    allocation = allocated()
    allocation.channel_to(0.2, PEER)
    (binding,) = requests(allocation)
    allocation.handle_success(0.2, binding.transaction)
    last = 0.0
    while allocation.relayed is not None:
        last = allocation.poll_timeout() or 0.0
        allocation.handle_timeout(last)
    assert allocation.poll_timeout() == pytest.approx(last + FAILED_AGAIN)
