"""The examples run as they are, print what they promise, and stay small."""

import re
from pathlib import Path

import pytest
import trio

from tests.house.pages import ROOT
from tests.interpreters import run_program

EXAMPLES = ROOT / "examples"
DEADLINE = 60.0
MOST_AT_ONCE = 4
MOST_LINES = 59

# Patterns of lines, each of which a program prints, and how often.
PRINTED = {
    "chat": {
        r"  ada \| cleo: Hello, all!": 1,
        r" cleo \| ada: How far is the fluid\?": 1,
        r" cleo \| bob: At step 300\.": 1,
        r"  bob \| ada: I have to go\. Bye!": 1,
    },
    "cosimulation": {
        r" \d\.\d s +o": 20,
        r"(oil|weight): the clock was wrong by \d+\.\d ms at most": 2,
    },
    "fastest": {
        r"1013 hPa, says ada": 1,
        r"cleo is done with cell 8": 1,
        r"refused: the last cell is 99, not 100": 1,
    },
    "from_asyncio": {r"36\.6 C are 309\.75 K": 1, r"nobody did not come": 1, r"sensor leaves": 1},
    "game": {r"\d+ of 300 positions came, and 30 of 30 shots": 1},
    "heat": {
        r"late comes in at step [1-9]\d*": 1,
        r"[ .:=+*#%@-]{64}": 20,
        r"(ada|bob|cleo|late): \d+ steps; as alone: True": 4,
    },
    "notebook": {
        r" ?-?\d\.\d( +o+)*": 11,
        r"pendulum swings between -0\.73 and 1\.00": 1,
    },
    "own_protocol": {r"loss (0|10|50)%: \d+\.\d s, \d+ lost, complete: True": 3},
    "secured": {
        r"Is it you, Bob\? Yes, Ada\.": 1,
        r"Bob's key is his own: True": 1,
        r"Eve, who has the secret: .*denied": 1,
        r"Eve, who guesses it: .*wrong secret.*": 1,
    },
    "stepped_again": {
        r"step (2[5-9]|3\d): recorded \d\.\d+, now \d\.\d+": 15,
        r"40 steps from step 0; 25 are equal bit by bit": 1,
    },
    "telemetry": {
        r"robot: the slowest reader is hanging": 1,
        r"recorder: 2000 poses up to step 1999, 0 passed over": 1,
        r"display: \d+ poses up to step \d+, [1-9]\d* passed over": 1,
    },
}


# Ten seconds of processor time: beside the quick suite, which `.ci/run` does.
@pytest.mark.soak
async def test_examples_run_and_print_what_they_promise(tmp_path: Path) -> None:
    limiter = trio.CapacityLimiter(MOST_AT_ONCE)

    async def check(name: str, patterns: dict[str, int]) -> None:
        program = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        async with limiter:
            printed, failure = await run_program(program, tmp_path, name, DEADLINE)
        assert failure is None, f"{name}: {failure}"
        lines = printed.splitlines()
        for pattern, times in patterns.items():
            found = [line for line in lines if re.fullmatch(pattern, line)]
            assert len(found) == times, f"{name}: {pattern} is {len(found)} times in\n{printed}"

    async with trio.open_nursery() as nursery:
        for name, patterns in PRINTED.items():
            nursery.start_soon(check, name, patterns)


def test_each_example_is_short_and_listed() -> None:
    listed = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    files = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert sorted(listed) == sorted(files) == sorted(PRINTED)
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in files.items()}
    assert max(lines.values()) <= MOST_LINES, lines
