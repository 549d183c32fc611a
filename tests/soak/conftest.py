"""How a soak tells what it does: a line now and then while it runs, and all figures at the end."""

from collections.abc import Callable

import pytest

TOLD = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def tell(
    request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Print a line at once where there is somebody who waits, which is in a soak only."""
    is_soak = request.node.get_closest_marker("soak") is not None

    def tell(line: str) -> None:
        if is_soak:
            with capfd.disabled():
                print(f"\n  {line}", end="", flush=True)

    return tell


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep figures for the end."""
    told = request.config.stash.setdefault(TOLD, [])
    return lambda line: told.append((request.node.name, line))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what ran."""
    told = config.stash.get(TOLD, [])
    if told:
        terminalreporter.section("what was soaked")
    for name, line in told:
        terminalreporter.write_line(f"{name}: {line}")
