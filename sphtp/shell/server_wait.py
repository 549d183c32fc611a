"""Waiting for servers that do not answer: warnings meanwhile, and an error at the end."""

import logging
from typing import Final

import trio

from sphtp.errors import UnreachableError
from sphtp.shell.probe import FaultKind, ServerFault

FIRST_LOOK: Final = 0.2
"""Seconds until the first diagnosis; on one machine a server answers after 0.01."""

GRACE: Final = 0.5
"""Seconds for which a fault may pass by itself before it is reported."""

PAUSE: Final = 0.15
"""Seconds between two diagnoses, so that there are several within ``GRACE``."""

LONG_PAUSE: Final = 1.0
"""Seconds between two diagnoses later on, while the program waits for a server to start."""

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

    @property
    def pause(self) -> float:
        """Seconds until the next diagnosis."""
        return PAUSE if self._passed <= GRACE else LONG_PAUSE

    def note(self, fault: ServerFault | None) -> None:
        """Raise ``UnreachableError`` if waiting cannot help; otherwise log each fault once."""
        if fault is None or self._passed < GRACE:
            return
        given = self._wait if fault.kind is FaultKind.ABSENT else 0.0
        if fault.kind is not FaultKind.SILENT and self._passed >= given:
            waited = f" within {given:g} s" if given else ""
            raise UnreachableError(f"{self._missing}{waited}: {fault.text}")
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
