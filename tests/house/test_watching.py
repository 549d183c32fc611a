"""The page on watching says what the code says: events, records, reasons."""

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from sphtp import Delivery, Outcome, observe
from sphtp.observe import Instrument
from sphtp.testing import Pair
from tests.cases import each
from tests.house.pages import ROOT, sections, table_rows
from tests.qlog_drafts import read_qlog
from tests.recorder import EVENTS

PAGE = ROOT / "docs" / "reference" / "watching.md"


def rows(title: str) -> dict[str, list[str]]:
    """Return the rows of a section's table, by their first cell."""
    page = {section.title: section.text for section in sections(PAGE)}
    return {row[0].strip("`"): row[1:] for row in table_rows(page[title])}


def test_every_event_has_its_line_with_its_arguments() -> None:
    said = {name: cells[0].strip("`").split(", ") for name, cells in rows("Events").items()}
    real = {
        name: list(inspect.signature(getattr(Instrument, name)).parameters)[1:] for name in EVENTS
    }
    assert said == real
    assert list(said) == list(real), "in the order of the class"


RECORDS = [
    getattr(observe, name)
    for name in dir(observe)
    if name.endswith("Info") or name == "WatchedChannel"
]


def test_every_record_has_its_line() -> None:
    assert set(rows("Records")) == {record.__name__ for record in RECORDS}


@each("record", RECORDS)
def test_a_line_names_every_field(record: type) -> None:
    [line] = rows("Records")[record.__name__]
    of_tuples = {"count", "index"}
    fields = {name for name in dir(record) if not name.startswith("_")} - of_tuples
    assert all(f"`{field}`" in line for field in fields)


def test_every_reason_has_its_line_and_its_words() -> None:
    reasons: list[type[Enum]] = [observe.Drop, observe.LostBy, observe.Obstacle]
    real = {f"{kind.__name__}.{reason.name}": reason.value for kind in reasons for reason in kind}
    assert {name: cells[0] for name, cells in rows("Reasons").items()} == real


# One argument of each name, of whatever sort; `why` depends on the event.
ARGUMENTS: dict[str, Any] = {
    "now": 1.0,
    "address": ("127.0.0.1", 1),
    "size": 1,
    "closed": observe.Closed(observe.CloseReason.DONE, "closed", by_peer=False),
    "packet": observe.PacketInfo(1, 100, (observe.FrameInfo("messages", 0, 1, 1),)),
    "sequence": 1,
    "by": observe.LostBy.TIME,
    "unanswered": 1,
    "trip": observe.RoundTripInfo(0.1, 0.1, 0.1, 0.1),
    "congestion": observe.CongestionInfo(1, 1, 1.0, "slow_start"),
    "lane": 0,
    "lanes": (0,),
    "delivery": Delivery.RELIABLE,
    "messages": 1,
    "message": observe.SettledInfo(0, 1, Outcome.DELIVERED, 0.1),
}
REASONS: dict[str, Enum] = {
    "datagram_dropped": observe.Drop.UNKNOWN,
    "channel_refused": observe.Refusal.FULL,
    "send_blocked": observe.Obstacle.CREDIT,
}


@each("event", EVENTS)
def test_the_log_names_events_and_their_data_as_the_page_does(event: str, tmp_path: Path) -> None:
    left, _ = Pair(1).open()
    arguments = ARGUMENTS | {"channel": observe.WatchedChannel(left), "why": REASONS.get(event)}
    with observe.QlogWriter(tmp_path / "log") as qlog:
        method = getattr(qlog, event)
        method(*[arguments[name] for name in inspect.signature(method).parameters])
    _, lines = read_qlog(tmp_path / "log")
    names, data = rows("The log")[event]
    for line in lines:
        assert f"`{line['name']}`" in names
        missing = [path for path in paths(line["data"]) if f"`{path}`" not in data]
        assert not missing


def paths(data: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Name every field, one in another as ``raw.length``; an address or a header is one field."""
    for name, value in data.items():
        if isinstance(value, dict) and name not in {"remote", "header"}:
            yield from paths(value, f"{name}.")
        else:
            yield above + name
