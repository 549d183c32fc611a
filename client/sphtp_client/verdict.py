"""How a run can end, and what a command's exit code says of it."""

from enum import Enum


class Verdict(Enum):
    """How a run ended, with the exit code of the command."""

    VERIFIED = ("verified", 0)
    FINISHED = ("finished", 0)
    MISMATCH = ("mismatch", 1)
    USAGE = ("usage", 2)
    FAILED = ("failed", 3)
    INTERRUPTED = ("interrupted", 130)
    TERMINATED = ("terminated", 143)

    @property
    def word(self) -> str:
        """The verdict's name in JSON."""
        return self.value[0]

    @property
    def code(self) -> int:
        """The exit code."""
        return self.value[1]
