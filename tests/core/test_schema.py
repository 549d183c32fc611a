"""What two programs compare: a hash, and enough to name the first difference."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.schema import EXCERPT, Mismatch, Schema, difference, digest_of
from tests.cases import each

NAMES = st.sampled_from(["Aim", "Hit", "Miss", "Shot", "Step"])
TYPES = st.dictionaries(NAMES, st.sampled_from(["bits x", "bits y", "msgpack x"]))


def schema(types: dict[str, str]) -> Schema:
    return Schema(f"{name}: {what}" for name, what in types.items())


def told(here: Schema, there: Schema) -> str:
    """What a side is told that dials the other."""
    return here.explain(there.compare(here.digests))


@given(TYPES, TYPES)
def test_the_first_type_that_differs_is_named(ours: dict[str, str], theirs: dict[str, str]) -> None:
    here, there = schema(ours), schema(theirs)
    assert (here.schema_hash == there.schema_hash) == (ours == theirs)
    first = difference(here.lines, there.lines)
    words = told(here, there)
    assert words.endswith(f"): {first}" if first else ")")


def test_both_hashes_are_named() -> None:
    assert told(schema({"A": "x"}), schema({})) == (
        f"message types differ (here {schema({'A': 'x'}).schema_hash:016x}, there none): "
        "A: here x, there missing"
    )
    assert "(here none, there " in told(schema({}), schema({"A": "x"}))


def test_nothing_to_agree_on_is_zero() -> None:
    assert Schema().schema_hash == 0
    assert Schema().digests == ()


def test_the_order_of_the_lines_does_not_matter() -> None:
    assert Schema(["b: 1", "a: 1"]).schema_hash == Schema(["a: 1", "b: 1"]).schema_hash


def test_of_more_types_than_were_told_none_is_blamed_that_is_alike() -> None:
    many = {f"T{number:03}": "x" for number in range(300)}
    here, there = schema(many), schema(many | {"T299": "y"})
    words = here.explain(there.compare(here.digests[:255]))
    assert words == (
        f"message types differ (here {here.schema_hash:016x}, there {there.schema_hash:016x})"
    )
    early = schema(many | {"T100": "y"})
    assert ": T100: here x, there y" in here.explain(early.compare(here.digests[:255]))


def test_of_a_long_description_the_part_is_shown_that_differs() -> None:
    fields = ", ".join(f"field{number}: integer" for number in range(100))
    ours, theirs = f"A: {fields}", f"A: {fields.replace('field50: integer', 'field50: text')}"
    words = difference([ours], [theirs]) or ""
    assert "field50: integer" in words
    assert "field50: text" in words
    assert len(words) < 2 * EXCERPT + 50


@each("line", ["", ": ", "\0\x1b[31m", "A", "A: x", "x" * 60_000, "\ufffd", "A: \n: \n"])
@each("digest", [0, 1, digest_of("A: x")])
def test_what_a_stranger_says_does_no_harm(line: str, digest: int) -> None:
    words = schema({"A": "x"}).explain(Mismatch(1, digest, line))
    assert words.startswith("message types differ (here ")
    assert words.isprintable()
    assert len(words) < 1600
