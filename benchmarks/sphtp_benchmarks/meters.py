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
    """A message that is longer or shorter than the one sent."""


def say(**words: float | list[int]) -> None:
    """Report values to the parent process as a line of JSON."""
    print(json.dumps(words), flush=True)


_told = SimpleQueue[str]()


def end_with_stdin() -> None:
    """Keep the lines of standard input for ``told``, and end this process at the end of the input.

    The parent ends the input when it ends itself, or to end this process. Run this in a thread of
    its own, so that it works even while the process is busy.
    """
    for line in sys.stdin:
        _told.put(line)
    os._exit(0)


def told() -> Any:
    """Wait for a line of JSON from the parent, and return its value."""
    return json.loads(_told.get())


def stay() -> None:
    """Keep the connection until the parent ends this process."""
    threading.Event().wait()


class MessageSource:
    """The messages to send for some seconds, and then a last one."""

    def __init__(self, size: int, seconds: float) -> None:
        self.last = bytes([LAST]) + bytes(size - 1)
        self._message = bytes(size)
        self._seconds = seconds
        self._sent = 0
        self._cpu_before = 0.0

    def bursts(self, count: int) -> Iterator[Sequence[bytes]]:
        """Yield the messages to send, ``count`` at a time, and at the end the last one alone."""
        burst = (self._message,) * count
        self._cpu_before = process_time()
        until = perf_counter() + self._seconds
        while perf_counter() < until:
            self._sent += count
            yield burst
        self._sent += 1
        yield (self.last,)

    def messages(self) -> Iterator[bytes]:
        """Yield the messages to send, one by one, without the last one."""
        for burst in self.bursts(_LOOK):
            if burst[0] is not self.last:
                yield from burst

    def encores(self) -> Iterator[bytes]:
        """Yield the last message without end, for systems that may have dropped it."""
        while True:
            sleep(_ENCORE)
            yield self.last

    def done(self) -> None:
        """Report the number of messages sent, and the processor time since the first one."""
        say(sent=self._sent, cpu=process_time() - self._cpu_before)


class Pauses:
    """The pauses that slow a receiver down to a rate, in messages per second.

    It takes the messages of a tenth of a second, then sleeps.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._taken = 0
        self._next = 0.0
        self._began: float | None = None

    def take(self, count: int) -> None:
        """Count messages, and sleep if a pause is due, which blocks the thread."""
        if self._began is None:
            self._began = perf_counter()
        self._taken += count
        if self._taken >= self._next:
            self._next = self._taken + self._rate * _PAUSE
            sleep(max(self._began + self._taken / self._rate - perf_counter(), 0.0))


class MessageTally:
    """A counter of messages as they arrive, which times those after the warm-up."""

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
        """Count messages, and report after the last one. Return True if it was among these.

        Raises ``WrongLengthError`` for a message of another length, and ``RuntimeError`` if the
        last message comes before the warm-up is over.
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
        """Report, because no further message will come, not even the last one."""
        self._report(perf_counter())

    def take_each(self, receive: Callable[[], bytes]) -> None:
        """Count the messages that a function returns one by one, up to the last one."""
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
        """Count the messages of an iteration, up to the last one."""
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
    """A stopwatch for the answers to messages, one at a time."""

    def __init__(self, size: int, warm_up: float, seconds: float) -> None:
        self._message = bytes(size)
        self._warm_up = warm_up
        self._seconds = seconds
        self._times: list[float] = []

    def pings(self) -> Iterator[bytes]:
        """Yield messages. Take the next one when the answer has arrived."""
        began = perf_counter()
        warm, until = began + self._warm_up, began + self._warm_up + self._seconds
        while (sent := perf_counter()) < until:
            yield self._message
            if sent >= warm:
                self._times.append(perf_counter() - sent)

    def pong(self, answer: bytes) -> None:
        """Check an answer. Raises ``WrongLengthError``."""
        if len(answer) != len(self._message):
            raise WrongLengthError(f"an answer is not {len(self._message)} bytes long")

    def done(self) -> None:
        """Report the number of round trips, and their percentiles in microseconds."""
        times = sorted(self._times)
        p50, p99 = (percentile(times, share) * 1e6 for share in (0.50, 0.99))
        say(round_trips=len(times), p50=p50, p99=p99)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
