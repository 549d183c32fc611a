"""Events reach every listener in order, and nobody waits for a slow one."""

import gc
import weakref

import pytest
import trio

from sphtp.shell.feed import Feed, Listener


async def take(listener: Listener[int], count: int) -> list[int]:
    return [await anext(listener) for _ in range(count)]


async def rest(listener: Listener[int]) -> list[int]:
    return [event async for event in listener]


async def test_every_listener_gets_what_happens_after_it_came() -> None:
    feed = Feed[int]()
    feed.publish(0)
    early = feed.listen()
    feed.publish(1)
    late = feed.listen()
    feed.publish(2)
    feed.close()
    assert await rest(early) == [1, 2]
    assert await rest(late) == [2]


async def test_a_slow_listener_misses_events_and_the_misses_are_counted() -> None:
    feed = Feed[int](buffer=2)
    slow, quick = feed.listen(), feed.listen()
    for event in range(5):
        feed.publish(event)
        assert await take(quick, 1) == [event]
    assert feed.dropped == 3
    assert (slow.missed, quick.missed) == (3, 0)
    feed.close()
    assert await rest(slow) == [0, 1]


async def test_a_listener_that_closed_is_forgotten() -> None:
    feed = Feed[int](buffer=1)
    listener = feed.listen()
    listener.close()
    for event in range(5):
        feed.publish(event)
    assert feed.dropped == 0
    with pytest.raises(trio.ClosedResourceError):
        await take(listener, 1)


async def test_a_listener_is_closed_at_the_end_of_its_block() -> None:
    feed = Feed[int](buffer=1)
    with feed.listen() as listener:
        feed.publish(1)
        assert await take(listener, 1) == [1]
    for event in range(5):
        feed.publish(event)
    assert feed.dropped == 0
    with pytest.raises(trio.ClosedResourceError):
        await take(listener, 1)


async def test_a_listener_that_nobody_holds_is_gone_with_all_it_kept() -> None:
    feed = Feed[int](buffer=2)
    kept = feed.listen()
    dropped = weakref.ref(feed.listen())
    looping = feed.listen()
    feed.publish(0)
    async for _ in looping:
        break
    del looping
    gc.collect()
    assert dropped() is None
    for event in (1, 2):
        feed.publish(event)
        assert feed.dropped == event - 1
    assert await take(kept, 2) == [0, 1]


async def test_listening_after_the_end_ends_at_once() -> None:
    feed = Feed[int]()
    feed.close()
    assert await rest(feed.listen()) == []
