"""A node that is sent made-up datagrams neither raises nor hangs nor grows."""

import pytest

from tests.fuzz.flood import flood
from tests.fuzz.nodes import SUBJECTS

BRIEF = 400
TEN_MILLION = 10_000_000

every_node = pytest.mark.parametrize("subject", SUBJECTS)


@every_node
def test_in_brief(subject: str, seed: int) -> None:
    result = flood(f"{seed} {subject}", BRIEF, lambda _: None, SUBJECTS[subject])
    assert result.inputs >= result.distinct >= BRIEF
    assert result.messages > 0
    print(result)


@pytest.mark.soak
@every_node
def test_of_ten_million(subject: str, seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    def tell(line: str) -> None:
        with capfd.disabled():
            print(f"\n  {line}", end="", flush=True)

    result = flood(f"{seed} {subject}", TEN_MILLION, tell, SUBJECTS[subject])
    assert result.inputs >= result.distinct >= TEN_MILLION
    tell(str(result))
