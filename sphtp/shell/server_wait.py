"""The wait for servers that are not heard: its end, and the warnings meanwhile."""

import logging
from typing import Final

import trio

from sphtp.errors import UnreachableError
from sphtp.shell.probe import FaultKind, ServerFault

FIRST_LOOK: Final = 0.2
"""Seconds until somebody asks why no server was heard; on one machine one is heard after 0.01."""

GRACE: Final = 0.5
"""Seconds for which trouble may pass by itself before anybody is told."""

PAUSE: Final = 0.1
"""Seconds between two looks at first, so that two that take long are over after a second."""

LONG_PAUSE: Final = 1.0
"""Seconds between two looks later on, at least."""

LONGEST_PAUSE: Final = 5.0
"""Seconds between two looks, at most, while somebody waits for a server to be started."""

log: Final = logging.getLogger("sphtp.client")


class ServerWait:
    """The time that something asked of servers may take, from now on.

    ``timeout`` is for servers that are there, ``wait`` for those that may still come: seconds.
    ``missing`` is what has not happened, as errors and warnings say it.
    """

    def __init__(
        self, timeout: float, wait: float = 0.0, *, missing: str = "not registered"
    ) -> None:
        self._missing = missing
        self._began = trio.current_time()
        self._wait = wait
        self.seconds = max(timeout, wait)
        self.deadline = self._began + self.seconds
        self.first_look = min(FIRST_LOOK, self.seconds / 2)
        self._warned: set[str] = set()
        self._silent: str | None = None

    @property
    def pause(self) -> float:
        """Seconds until the next look.

        It doubles what has passed. A look dials like the bus itself, and what it dials may be a
        server that a thousand dial at once, or one that has no place left: there, a look each
        second pushed out the handshake of the very client that looked.
        """
        passed = self._passed
        if passed <= 2 * GRACE:
            return PAUSE
        pause = min(max(LONG_PAUSE, passed), LONGEST_PAUSE)
        return min(pause, self._wait - passed) if passed < self._wait else pause

    def note(self, fault: ServerFault | None) -> None:
        """Raise ``UnreachableError`` where waiting is of no use; else warn in the log, once.

        Silence is warned of when two looks have found it: of a thousand clients that start at
        once, some find the server too busy to answer.
        """
        before, self._silent = self._silent, None
        if fault is not None and fault.kind is FaultKind.SILENT:
            self._silent = fault.text
            if before != fault.text:
                return
        if fault is None or self._passed < GRACE:
            return
        given = self._wait if fault.kind is FaultKind.ABSENT else 0.0
        if fault.kind is not FaultKind.SILENT and self._passed >= given:
            waited = f" within {given:g} s" if given else ""
            raise UnreachableError(f"{self._missing}{waited}: {fault.text}")
        if fault.text not in self._warned:
            self._warned.add(fault.text)
            left = self.deadline - trio.current_time()
            log.warning("%s yet: %s; waits for up to %.3g s", self._missing, fault.text, left)

    def give_up(self, why: str) -> UnreachableError:
        """Return the error for when time is up."""
        return UnreachableError(f"{self._missing} within {self.seconds:g} s: {why}")

    @property
    def _passed(self) -> float:
        return trio.current_time() - self._began
