import sys
from collections.abc import Mapping, Sequence
from typing import cast

import pytest
import trio

from sphtp_client.cluster.process import ChildProcess
from tests.interpreters import ForkedProcess


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of a measurement instead of starting an interpreter for each.

    Where the end of the verb is tested, it starts them as users see it.
    """

    async def spawn(
        command: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> ChildProcess:
        *before, module, argument = command
        assert before == [sys.executable, "-m"]
        return ChildProcess(cast("trio.Process", ForkedProcess.of_module(module, [argument])))

    monkeypatch.setattr(ChildProcess, "spawn", spawn)
