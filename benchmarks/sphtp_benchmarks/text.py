"""Figures as texts, the same on the screen and on the page."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sphtp_benchmarks.catalog import Catalog, Measure
from sphtp_benchmarks.figures import Figures, Sheet

HEADINGS: Final = (
    "system",
    "steps/s",
    "messages/s",
    "MB/s",
    "round trip p50",
    "p99",
    "CPU per message",
    "CPU per step",
    "sender's CPU",
    "receiver's CPU",
    "delivered",
    "reported lost",
)
OURS_THEIRS: Final = "ours/theirs"
COMPARED: Final = {Measure.SENDING: "8/1"}
"""The heading of the column of ratios by measure, where it is not ``ours/theirs``."""
EXPLAINED: Final = {
    Measure.MESSAGES: "`ours/theirs` is SphTP's messages/s divided by the other system's.",
    Measure.BYTES: "`ours/theirs` is SphTP's MB/s divided by the other system's.",
    Measure.STEPS: "`ours/theirs` is SphTP's steps/s divided by the other system's.",
    Measure.ROUND_TRIP: (
        "`ours/theirs` is SphTP's median round trip divided by the other system's: below 1, SphTP "
        "is faster."
    ),
    Measure.SENDING: (
        "`8/1` is the sender's CPU per message with eight receivers, divided by that with one."
    ),
    Measure.TOLD: (
        "`ours/theirs` is the share of messages that SphTP delivers or reports lost, divided by "
        "the other system's."
    ),
}


def caption(case: str, sheet: Sheet, headings: Sequence[str]) -> str:
    """Return the explanation of the column of ratios; empty if the table has no such column."""
    measure = sheet.catalog.cases[case].measure
    return EXPLAINED[measure] if COMPARED.get(measure, OURS_THEIRS) in headings else ""


def table_of(case: str, sheet: Sheet) -> list[list[str]]:
    """Return a case as lines of a table, headings first, without the columns that would be empty.

    There is a line for each system measured and for each that is absent; no lines when nothing was
    measured.
    """
    lines = _lines(case, sheet)
    headings = (*HEADINGS, COMPARED.get(sheet.catalog.cases[case].measure, OURS_THEIRS))
    used = [at for at in range(len(headings)) if any(line[at] for line in lines)]
    return [[line[at] for at in used] for line in (headings, *lines)] if lines else []


def _lines(case: str, sheet: Sheet) -> list[tuple[str, ...]]:
    ratios = sheet.ratios()
    beside = {each.beside: factor(ratios[each.name]) for each in sheet.catalog.ratios}
    rows = {row.system: row for row in sheet.rows() if row.case == case}
    lines: list[tuple[str, ...]] = []
    if not rows:
        return lines
    for system in sheet.catalog.cases[case].systems:
        ratio = beside.get((case, system), "")
        if system in rows:
            lines.append((system, *cells(rows[system].figures), ratio))
        elif system in sheet.absent:
            lines.append((f"{system} (absent)", *cells(Figures()), ratio))
    return lines


def cells(figures: Figures) -> tuple[str, ...]:
    """Return the figures in the order of the headings."""
    return (
        number(figures.steps_per_s, ""),
        number(figures.messages_per_s, ""),
        number(figures.mb_per_s, ""),
        number(figures.rtt_p50_us, " us"),
        number(figures.rtt_p99_us, " us"),
        number(figures.cpu_us_per_message, " us"),
        number(figures.cpu_us_per_step, " us"),
        number(figures.sender_us_per_message, " us"),
        number(figures.receiver_us_per_message, " us"),
        share(figures.delivered),
        share(figures.reported),
    )


def number(value: float | None, unit: str) -> str:
    """Return a figure with three digits or more; empty for None."""
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


def share(value: float | None) -> str:
    """Return a share in percent; empty for None. Only 0 and 1 are shown as 0 % and 100 %."""
    if value is None:
        return ""
    return f"{value:.0%}" if value in {0, 1} else f"{min(max(value, 0.0001), 0.9999):.2%}"


def factor(value: float | None) -> str:
    """Return a ratio with two decimals; empty for None."""
    return "" if value is None else f"{value:.2f}"


def condition_lines(conditions: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return conditions as pairs of a name and a text."""
    versions = ", ".join(
        f"{name} {version or 'absent'}" for name, version in conditions["versions"].items()
    )
    return [
        ("date", conditions["date"]),
        ("machine", f"{conditions['cpu_count']} x {conditions['cpu']}"),
        ("load before", str(conditions["load"])),
        ("kernel", conditions["kernel"]),
        ("Python", conditions["python"]),
        ("warm-up, not counted", f"{conditions['warm_up']:g} s"),
        ("versions", versions),
        (
            "each figure",
            f"median of {conditions['rounds']} rounds of {conditions['seconds']:g} s each",
        ),
    ]


def remarks(sheet: Sheet) -> list[str]:
    """Return the absent systems and the failures, as lines of text."""
    return [
        *(f"{name} is absent: {why}" for name, why in sheet.absent.items()),
        *(f"failed: {failure}" for failure in sheet.failures),
    ]


def legend(catalog: Catalog) -> list[tuple[str, str]]:
    """Return the name and the description of each system."""
    return [(system.name, system.text) for system in catalog.systems.values()]
