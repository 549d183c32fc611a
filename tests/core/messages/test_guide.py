"""The programs of the guide run, one after the other, as they stand there."""

import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "define-message-types.md"


def test_the_guide_runs(capsys) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)
    assert len(programs) == 6
    names = {"__name__": "guide"}
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), names)
    assert capsys.readouterr().out.startswith("Shot: here bits Shot[angle, power, loud, target](")
