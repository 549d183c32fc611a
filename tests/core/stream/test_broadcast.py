"""Sources and receivers on networks that do everything wrong, from seeds, in virtual time."""

from random import Random
from typing import Any

import pytest

from sphtp.core.stream.delivery.items import End
from sphtp.core.stream.events import Batch
from sphtp.core.stream.settings import StreamSettings
from sphtp.testing import Broadcast, Faults
from sphtp.testing.subscriber import Subscriber, Terms
from tests.soaked import soaked

DELAY = 0.002
SETTINGS = StreamSettings(
    generation=2.0, activity_timeout=2.0, session_max=0.5, fetch_timeout=2.0, fetch_interval=0.1
)
ALL = 1 << 40
FAULTS: dict[str, Any] = {
    "loss": (0.0, 0.05, 0.3),
    "duplicate": (0.0, 0.1),
    "reorder": (0.0, 0.2),
    "jitter": (0.0, 0.005),
    "burst": (0.0, 0.01),
}


def check(broadcast: Broadcast, subscriber: Subscriber, sent: list[bytes]) -> int:
    """Each message from the join on is told once or its loss is, as it was; return the losses."""
    why = f"seed {broadcast.seed}"
    told, lost = dict[int, bytes](), set[int]()
    assert [type(item) for item in subscriber.items].count(End) == 1, why
    assert isinstance(subscriber.items[-1], End), why
    last = -1
    for item in subscriber.items[:-1]:
        if isinstance(item, Batch):
            numbers = range(item.first, item.first + len(item.payloads))
            assert not told.keys() & set(numbers), why
            told.update(zip(numbers, item.payloads, strict=True))
        else:
            assert not isinstance(item, End), why
            numbers = range(item.first, item.last + 1)
            assert not lost & set(numbers), why
            lost.update(numbers)
        if subscriber.terms.ordered:
            assert numbers[0] > last, why
            last = numbers[-1]
    assert not told.keys() & lost, why
    assert all(sent[number] == payload for number, payload in told.items()), why
    known = sorted(told.keys() | lost)
    assert known == list(range(known[0], known[-1] + 1)) if known else True, why
    return len(lost)


def play(seed: int) -> None:
    """One schedule of trouble: who comes when, what goes wrong, and an end."""
    random = Random(f"{seed} schedule")
    faults = Faults(delay=DELAY, **{name: random.choice(some) for name, some in FAULTS.items()})
    first = random.choice((1, 2**32 - 20, 2**40))
    broadcast = Broadcast(seed, 0, faults, SETTINGS, shared=random.random() < 0.3, first=first)
    sent, staying = list[bytes](), list[Subscriber]()
    for step in range(random.randrange(10, 40)):
        if random.random() < 0.2 or not step:
            terms = Terms(ordered=random.random() < 0.7, late_join=random.choice((0, 5, ALL)))
            staying.append(broadcast.join(terms=terms))
        if random.random() < 0.05 and len(staying) > 1:
            broadcast.leave(staying.pop(random.randrange(len(staying))))
        if random.random() < 0.05:
            broadcast.network.set_default(Faults(delay=DELAY, blocked=True))
            broadcast.run(random.choice((0.1, 0.5)))
            broadcast.network.set_default(faults)
        messages = [
            f"{len(sent) + number} ".encode() + bytes(random.choice((0, 40, 900)))
            for number in range(random.randrange(1, 8))
        ]
        sent += messages
        broadcast.send(messages)
        broadcast.run(random.choice((0.001, 0.01, 0.1)))
    if random.random() < 0.8:
        broadcast.close()
    else:
        broadcast.crash(broadcast.publisher, unnoticed=random.random() < 0.5)
    broadcast.run(15)
    for subscriber in staying:
        check(broadcast, subscriber, sent)


@pytest.mark.parametrize("batch", [range(60), *soaked([range(60, 10_060)])], ids=len)
def test_each_message_is_told_once_or_its_loss_is_whatever_goes_wrong(batch: range) -> None:
    for seed in batch:
        play(seed)


@pytest.mark.parametrize("batch", [range(20), *soaked([range(1000)])], ids=len)
def test_a_clean_close_loses_no_tail(batch: range) -> None:
    for seed in batch:
        faults = Faults(delay=DELAY, loss=0.1)
        broadcast = Broadcast(seed, 2, faults, StreamSettings())
        sent = [b"%d" % number for number in range(20)]
        for number in range(0, 20, 4):
            broadcast.send(sent[number : number + 4])
            broadcast.run(0.001)
        broadcast.close()
        broadcast.run(30)
        for subscriber in broadcast.subscribers:
            assert subscriber.payloads == sent, f"seed {seed}"
            assert check(broadcast, subscriber, sent) == 0


def test_one_that_loses_everything_changes_nothing_for_the_others() -> None:
    def told_by_others(loss: float) -> list[float]:
        broadcast = Broadcast(7, 3, Faults(delay=DELAY, loss=0.05), StreamSettings())
        deaf = broadcast.subscribers[0]
        station = broadcast.publisher.address
        broadcast.network.set_faults(Faults(delay=DELAY, loss=loss), station, deaf.address)
        times = list[float]()
        for number in range(2000):
            broadcast.send([b"%d" % number])
            broadcast.run(0.001)
            times.append(sum(len(one.payloads) for one in broadcast.subscribers[1:]))
        broadcast.run(5)
        assert all(len(one.payloads) == 2000 for one in broadcast.subscribers[1:])
        return times

    usual, beside = told_by_others(0.05), told_by_others(1.0)
    assert sum(beside) >= 0.9 * sum(usual)
