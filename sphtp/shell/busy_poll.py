"""How who waits for an answer gets it soonest: by looking for it a while, before sleeping.

Who sleeps is woken late, on a virtual machine some 25 us after the datagram came, and runs on cold
caches then; a peer on the same machine has answered by that time. So where answers come soon,
looking is faster (busy polling: the kernel's ``net.core.busy_poll``, and its guests' halt polling).
A task that waits for a message looks itself, which saves its being woken by the node's task (leader
and followers); where several wait, or none at the moment, the node's task looks. Where no answer
comes it is a waste, which a single try shows; others have the core between two looks.
"""

import os
from collections.abc import Callable
from typing import Final, Protocol

import trio

MOST_LOOKS: Final = 256
"""So that looking ends where a clock stands still, as in tests."""

IDLE: Final = 12
"""Looks in vain after which there is time for what was put off: on loopback, an answer that comes
at once comes sooner."""

GRACE: Final = 2
"""Looks for which the node's task leaves a datagram to a reader, should none be looking."""

SELDOM: Final = 8
"""Of so many looks of a reader, one at which the node's task sees to its own."""

give_way: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)
"""Lets other processes have the core, if there are any that want it."""


class Traffic(Protocol):
    """What is looked at."""

    def is_waiting(self) -> bool:
        """Whether a datagram lies in the socket."""

    def fetch(self) -> bool:
        """Take what came first off the socket; false when there is nothing."""

    def has_work(self, now: float) -> bool:
        """Whether something is due, or was asked for, that only the node's task does."""

    def tidy(self) -> None:
        """Do what was put off, if anything was."""

    def touch_all(self) -> None:
        """Send what there is, and tell whoever waits for what came."""


class BusyPoll:
    """Decides who looks, and for how long: ``window`` seconds at most."""

    def __init__(self, traffic: Traffic, window: float) -> None:
        self._traffic = traffic
        self._window = window
        # Whether something was sent since something was read, and whether what was waited for last
        # came within the window.
        self._expects = False
        self._pays = False
        # How many wait for messages, whether one of them looks, and whether one got a message
        # since the node's task last looked at this.
        self._waiting = 0
        self._is_led = False
        self._found = False
        self.is_polling = False

    def expect(self) -> None:
        """Take note that something was sent, and may be answered."""
        self._expects = True

    async def wait(self, asleep: trio.lowlevel.ParkingLot, is_there: Callable[[], bool]) -> None:
        """Wait for messages until some are there, or until those asleep are woken."""
        began = trio.current_time()
        self._waiting += 1
        try:
            may_lead = self._waiting == 1 and self.is_polling and self._is_likely
            if may_lead:
                # The node's task, which began to look before, may have given up by now.
                self._pays = await self._lead(began, is_there)
            if not is_there():
                await asleep.park()
                self._pays = trio.current_time() - began < self._window
        finally:
            self._waiting -= 1
        if is_there():
            self._expects, self._found = False, True

    async def stay_awake(self) -> bool:
        """Look as long as no reader does; false when the node's task had better sleep."""
        if not self._is_likely:
            return False
        self.is_polling = True
        try:
            return await self._stay_awake()
        finally:
            self.is_polling = False

    @property
    def _is_likely(self) -> bool:
        return self._pays and self._expects

    async def _stay_awake(self) -> bool:
        traffic, looks, alone = self._traffic, 0, 0
        until = trio.current_time() + self._window
        while looks < MOST_LOOKS and (now := trio.current_time()) <= until:
            await trio.lowlevel.checkpoint()
            looks += 1
            alone = 0 if self._is_led else alone + 1
            if self._is_led and looks % SELDOM:
                continue
            if not self._is_likely or traffic.has_work(now):
                return True
            # A reader that is just about to come back gets it sooner.
            if alone >= GRACE and traffic.is_waiting():
                return True
            if alone == IDLE:
                traffic.tidy()
            if alone:
                give_way()
            if self._found:
                looks, until, self._found = 0, now + self._window, False
        self._pays = False
        return False

    async def _lead(self, began: float, is_there: Callable[[], bool]) -> bool:
        """Look until it is there; false when whoever waits had better sleep."""
        traffic = self._traffic
        self._is_led = True
        try:
            for looks in range(MOST_LOOKS):
                await trio.lowlevel.checkpoint()
                if is_there():
                    return True
                if traffic.fetch():
                    if not is_there() or not self.is_polling:
                        # It is for others, or there is nobody to see to what remains to be done.
                        traffic.touch_all()
                    if is_there():
                        return True
                elif looks == IDLE:
                    traffic.tidy()
                give_way()
                if trio.current_time() - began > self._window:
                    break
            return False
        finally:
            self._is_led = False
