"""What is shown of foreign text: all of it to be seen, and nothing that steers."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.printable import (
    LONGEST,
    in_bytes,
    in_seconds,
    listed,
    percent,
    printable,
    printable_lines,
)
from tests.cases import each


@given(st.text())
def test_every_character_is_to_be_seen(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))


@given(st.text().filter(str.isprintable))
def test_what_can_be_seen_stays(text: str) -> None:
    assert printable(text) == printable_lines(text) == text


@each(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\u001b[31m"),
        ("\x9b2J\x07", r"\u009b2J\u0007"),
        ("a\r\nb", r"a\u000d\u000ab"),
        ("\u202eexe.txt", r"\u202eexe.txt"),
        ("\u2028", r"\u2028"),
        ("\udc80", r"\udc80"),
    ],
)
def test_controls_and_overrides_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_what_is_long_is_cut() -> None:
    assert printable("x" * LONGEST) == "x" * LONGEST
    assert printable("x" * LONGEST + "y") == "x" * LONGEST + "..."
    assert printable("abcdef", 3) == "abc..."


def test_words_for_numbers() -> None:
    assert [in_seconds(it) for it in (0.0000004, 0.002, 3.0)] == ["0.4 us", "2 ms", "3 s"]
    assert [in_bytes(it) for it in (12, 1500, 2e6, 5e12)] == ["12 B", "1.5 kB", "2 MB", "5 TB"]
    assert [percent(it) for it in (0.001, 0.0949, 0.5)] == ["0.1 %", "9.5 %", "50 %"]
    assert [listed(["a", "b", "c"][:n], 2) for n in range(4)] == [
        "", "a", "a and b", "a, b and 1 more",
    ]  # fmt: skip
