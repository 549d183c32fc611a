"""Counters and stopwatches of both ends of a measurement: the same code for every system.

A message starts with a byte that is 0 in every message but the last.
"""

import json
import os
import sys
import threading
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from math import ceil
from queue import SimpleQueue
from time import perf_counter, process_time, sleep
from typing import Any, Final

LAST: Final = 1
_HELD = 1 << 20  # bytes in a batch of messages that came one by one
_MOST = 256
_FEW = 32  # messages between two looks at the clock, where they arrive one by one
_LOOK = 64  # messages between two looks at the clock, where they leave one by one
_PAUSE = 0.1  # seconds, of a receiver that is slow
_ENCORE = 0.01  # seconds between repetitions of the last message


class WrongLengthError(Exception):
    """A message is longer or shorter than the one sent."""


def say(**words: float | list[int]) -> None:
    """Report a value to the parent process as a line of JSON."""
    print(json.dumps(words), flush=True)


_told = SimpleQueue[str]()


def end_with_stdin() -> None:
    """Keep what the parent tells; end this process when the parent has gone or wants it to.

    That is whatever the process is doing then, for this runs in a thread of its own.
    """
    for line in sys.stdin:
        _told.put(line)
    os._exit(0)


def told() -> Any:
    """Wait for a line of JSON from the parent."""
    return json.loads(_told.get())


def stay() -> None:
    """Keep the connection until the parent ends this process."""
    threading.Event().wait()


class MessageSource:
    """Hands out messages to send for some seconds, and then a last one."""

    def __init__(self, size: int, seconds: float) -> None:
        self.last = bytes([LAST]) + bytes(size - 1)
        self._message = bytes(size)
        self._seconds = seconds
        self._sent = 0
        self._cpu_before = 0.0

    def bursts(self, count: int) -> Iterator[Sequence[bytes]]:
        """Iterate over what to send, ``count`` messages at a time."""
        burst = (self._message,) * count
        self._cpu_before = process_time()
        until = perf_counter() + self._seconds
        while perf_counter() < until:
            self._sent += count
            yield burst
        self._sent += 1
        yield (self.last,)

    def messages(self) -> Iterator[bytes]:
        """Iterate over what to send, one by one, without the last message."""
        for burst in self.bursts(_LOOK):
            if burst[0] is not self.last:
                yield from burst

    def encores(self) -> Iterator[bytes]:
        """Iterate over the last message for ever: for systems that may have dropped it."""
        while True:
            sleep(_ENCORE)
            yield self.last

    def done(self) -> None:
        """Report that everything has been handed over for delivery."""
        say(sent=self._sent, cpu=process_time() - self._cpu_before)


class Pauses:
    """Slows a receiver down to a rate: it takes what a tenth of a second allows, then sleeps."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._taken = 0
        self._next = 0.0
        self._began: float | None = None

    def take(self, count: int) -> None:
        """Count messages, and sleep when it is time to: nothing else in the thread goes on."""
        if self._began is None:
            self._began = perf_counter()
        self._taken += count
        if self._taken >= self._next:
            self._next = self._taken + self._rate * _PAUSE
            sleep(max(self._began + self._taken / self._rate - perf_counter(), 0.0))


class MessageTally:
    """Counts messages as they arrive, and times those after the warm-up."""

    def __init__(self, size: int, warm_up: float, pauses: Pauses | None = None) -> None:
        self._size = size
        self._warm_up = warm_up
        self._pauses = pauses
        self._received = 0
        self._reported = 0
        self._first: float | None = None
        self._cpu_before = 0.0
        self._start: tuple[float, int] | None = None

    def take(self, messages: Sequence[bytes]) -> bool:
        """Count messages and report after the last one; true when it was among these.

        Raises ``WrongLengthError``.
        """
        if not messages:
            return False
        if set(map(len, messages)) != {self._size}:
            raise WrongLengthError(f"a message is not {self._size} bytes long")
        now = perf_counter()
        self._received += len(messages)
        if self._start is None:
            self._warm(now)
        if messages[-1][0] != LAST:
            if self._pauses is not None:
                self._pauses.take(len(messages))
            return False
        self._report(now)
        return True

    def lose(self, count: int) -> None:
        """Count messages that are reported as lost."""
        self._reported += count

    def end(self) -> None:
        """Report: nothing more will come, not even the last message."""
        self._report(perf_counter())

    def take_each(self, receive: Callable[[], bytes]) -> None:
        """Count what a function returns, message by message, up to the last one."""
        limit = max(1, min(_MOST, _HELD // self._size))
        batch: list[bytes] = []
        while not self.take(batch):
            batch = []
            for _ in range(limit):
                message = receive()
                batch.append(message)
                if message[0] == LAST:
                    break

    async def take_all(self, messages: AsyncIterable[bytes]) -> None:
        """Count what an iteration brings, message by message, up to the last one."""
        batch: list[bytes] = []
        async for message in messages:
            batch.append(message)
            if len(batch) == _FEW or message[0] == LAST:
                if self.take(batch):
                    return
                batch = []

    def _warm(self, now: float) -> None:
        if self._first is None:
            self._first = now
            self._cpu_before = process_time()
        if now - self._first >= self._warm_up:
            self._start = (now, self._received)

    def _report(self, now: float) -> None:
        if self._start is None:
            raise RuntimeError("the last message came before the warm-up was over")
        began, before = self._start
        say(
            received=self._received,
            reported=self._reported,
            measured=self._received - before,
            seconds=now - began,
            cpu=process_time() - self._cpu_before,
        )


class Stopwatch:
    """Hands out one message after the other and times how long its answer takes."""

    def __init__(self, size: int, warm_up: float, seconds: float) -> None:
        self._message = bytes(size)
        self._warm_up = warm_up
        self._seconds = seconds
        self._times: list[float] = []

    def pings(self) -> Iterator[bytes]:
        """Iterate over messages; the next one is asked for when the answer is here."""
        began = perf_counter()
        warm, until = began + self._warm_up, began + self._warm_up + self._seconds
        while (sent := perf_counter()) < until:
            yield self._message
            if sent >= warm:
                self._times.append(perf_counter() - sent)

    def pong(self, answer: bytes) -> None:
        """Look at an answer; raises ``WrongLengthError``."""
        if len(answer) != len(self._message):
            raise WrongLengthError(f"an answer is not {len(self._message)} bytes long")

    def done(self) -> None:
        """Report the round trips, in microseconds."""
        times = sorted(self._times)
        p50, p99 = (percentile(times, share) * 1e6 for share in (0.50, 0.99))
        say(round_trips=len(times), p50=p50, p99=p99)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
