"""Waiting for servers that do not answer: warnings meanwhile, and an error at the end."""

import logging
from typing import Final

import trio

from sphtp.errors import UnreachableError
from sphtp.shell.probe import FaultKind, ServerFault

FIRST_LOOK: Final = 0.1
"""Seconds until the first diagnosis; on one machine a server answers after 0.01."""

GRACE: Final = 0.5
"""Seconds for which a fault may pass by itself before it is reported."""

PAUSE: Final = 0.1
"""Seconds between two diagnoses at first, so that two slow ones end within a second."""

LONG_PAUSE: Final = 1.0
"""Seconds between two diagnoses later on, at least."""

LONGEST_PAUSE: Final = 5.0
"""Seconds between two diagnoses, at most, while the program waits for a server to start."""

log: Final = logging.getLogger("sphtp.client")


class ServerWait:
    """The time that servers have to answer a request, from now on.

    ``timeout`` is for running servers, ``wait`` for servers that may start later, both in seconds.
    ``missing`` is the state that errors and warnings report, such as "not registered".
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
        """Seconds until the next diagnosis: as many as have passed, within bounds.

        A diagnosis dials as the bus itself does. If a thousand clients start at once, or the server
        has no place left, its connection may displace the client's own.
        """
        passed = self._passed
        if passed <= 2 * GRACE:
            return PAUSE
        pause = min(max(LONG_PAUSE, passed), LONGEST_PAUSE)
        return min(pause, self._wait - passed) if passed < self._wait else pause

    def note(self, fault: ServerFault | None) -> None:
        """Raise ``UnreachableError`` if waiting cannot help; otherwise log each fault once.

        Silence is logged after two diagnoses found it: of a thousand clients that start at once,
        some find the server too busy to answer.
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
        self.warn(fault)

    def warn(self, fault: ServerFault) -> None:
        """Log a fault, unless it was logged before."""
        if fault.text not in self._warned:
            self._warned.add(fault.text)
            left = self.deadline - trio.current_time()
            log.warning("%s yet: %s; waiting for up to %.3g s", self._missing, fault.text, left)

    def give_up(self, why: str) -> UnreachableError:
        """Return the error of a timeout."""
        return UnreachableError(f"{self._missing} within {self.seconds:g} s: {why}")

    @property
    def _passed(self) -> float:
        return trio.current_time() - self._began
