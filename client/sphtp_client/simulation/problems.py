"""What is wrong with a scenario, told by file, key, value and what is allowed there."""

from collections.abc import Iterable
from dataclasses import dataclass

from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused value: ``key`` as written in the file, such as ``spheres[0].radius``."""

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.allowed}"


class ScenarioError(SettingsError):
    """A scenario that cannot be run; ``problems`` holds every reason, ``source`` the file."""

    def __init__(self, problems: Iterable[Problem], source: str = "scenario") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))

    def found_in(self, source: str) -> "ScenarioError":
        """Return the same refusal under the name of the file that it was read from."""
        return ScenarioError(self.problems, source)
