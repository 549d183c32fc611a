"""What one member keeps and what it does not take, message by message."""

import pytest

from sphtp.core.group.lifecycle import GroupState
from sphtp.core.group.machine import GroupMachine, GroupTerms
from sphtp.core.group.messages import (
    Admitted,
    Complaint,
    GroupHello,
    GroupMessage,
    Install,
    StateSnapshot,
    contribution_head,
    encode_group_message,
)
from sphtp.core.group.seats import Key, OnDeath, Seat
from sphtp.errors import RemoteError
from tests.core.group.simulated import World
from tests.fuzz.census import census

ADA, BOB, NEW = (3, 1), (5, 1), (9, 1)


def seat_of(key: Key, start: int = 0, end: int | None = None) -> Seat:
    return Seat(*key, "", start, (start, key[0]), has_state=True, end=end)


def feed(machine: GroupMachine, link: int, message: GroupMessage) -> None:
    machine.handle_message_untrusted(1.0, link, encode_group_message(message))


def hello_of(key: Key) -> GroupHello:
    return GroupHello(1, "fluid", key, "", "continue", 1, has_state=True, founder=ADA)


@pytest.fixture
def newcomer() -> GroupMachine:
    """One that ADA (link 1) and BOB (link 2) let in, at step 4."""
    machine = GroupMachine(
        0.0, NEW, GroupTerms(group="fluid", name="new", on_death=OnDeath.CONTINUE)
    )
    for link, key in ((1, ADA), (2, BOB)):
        machine.handle_link_opened(0.5, link, key[0])
        feed(machine, link, hello_of(key))
    feed(machine, 1, Install(1, 2, ADA, (seat_of(ADA), seat_of(BOB), seat_of(NEW, 4))))
    return machine


def shown(machine: GroupMachine) -> tuple[GroupState, int, bytes | None]:
    return machine.state, machine.step, machine.snapshot


def test_the_state_of_a_step_before_the_first_one_is_not_taken(newcomer: GroupMachine) -> None:
    feed(newcomer, 1, StateSnapshot(4, b"of step 4"))
    assert shown(newcomer) == (GroupState.ENTERING, 4, b"of step 4")
    # Ada has told nobody else of this member, and dies; Bob lets it in anew.
    newcomer.handle_link_lost(1.0, 1)
    feed(newcomer, 2, Install(1, 2, ADA, (seat_of(ADA, 0, 4), seat_of(BOB), seat_of(NEW, 7))))
    feed(newcomer, 2, Admitted(2))
    assert shown(newcomer) == (GroupState.ENTERING, 7, None)
    feed(newcomer, 2, StateSnapshot(7, b"of step 7"))
    assert shown(newcomer) == (GroupState.MEMBER, 7, b"of step 7")
    feed(newcomer, 2, StateSnapshot(7, b"too late"))
    assert shown(newcomer) == (GroupState.MEMBER, 7, b"of step 7")


def test_nobody_takes_the_id_of_another_member(newcomer: GroupMachine) -> None:
    members = newcomer.members
    newcomer.handle_link_opened(1.0, 3, 7)
    with pytest.raises(RemoteError, match="0x00000007 calls itself 0x00000003"):
        feed(newcomer, 3, hello_of((ADA[0], 2)))
    assert newcomer.members == members
    feed(newcomer, 3, hello_of((7, 1)))


def test_what_is_of_no_member_is_not_kept(newcomer: GroupMachine) -> None:
    feed(newcomer, 1, StateSnapshot(4, b""))
    feed(newcomer, 1, Admitted(2))
    feed(newcomer, 2, Admitted(2))
    newcomer.handle_link_opened(1.0, 3, 7)
    feed(newcomer, 3, hello_of((7, 1)))
    before = census(newcomer)
    for number in range(100):
        feed(newcomer, 1, Complaint(((number, number),)))
        newcomer.handle_message_untrusted(
            1.0, 3, contribution_head(4 + number % 9) + b"\xc4\x63" + bytes(99)
        )
    assert census(newcomer).entries <= before.entries
    assert newcomer.state is GroupState.MEMBER


@pytest.mark.parametrize("on_death", OnDeath)
def test_nothing_grows_with_joins_and_leaves(on_death: OnDeath) -> None:
    world = World(3, on_death, size=2, last=10**9)
    stays = world.add("stays")
    for worker in (stays, world.add("too")):
        worker.pause = 0.001
    sizes = []
    for number in range(10):
        guest = world.add(f"guest{number}")
        guest.pause = 0.001
        world.run(lambda guest=guest: guest.began_at is not None and guest.step > guest.began_at)
        guest.leave()
        world.run(lambda guest=guest: not guest.is_running)
        sizes.append(census(stays.machine).entries)
    assert max(sizes[5:]) <= max(sizes[:5]), sizes
