"""What a simulation process reports, as it is written and read."""

import io

from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.simulation.reports import (
    REPORTERS,
    Connected,
    Failed,
    Finished,
    LinkReport,
    PageLimited,
    PeerGone,
    Result,
    ServerCame,
    ServerLost,
    Started,
    StepProgress,
    Totals,
    parse_event,
)
from tests.cases import each


def test_what_is_written_is_read():
    link = LinkReport(peer=9, slab=1, sent=2, received=3, lost=0, resent=0, rtt_ms=None)
    event = StepProgress(step=3, steps=9, steps_per_s=2.5, servers=(2,), links=(link,))
    assert parse_event(event.model_dump_json().encode()) == event


def test_a_log_line_of_a_server_is_read_and_its_other_keys_are_skipped():
    line = b'{"event": "started", "id": 4, "pub": "tcp://h:1", "sub": "tcp://h:2", "level": "info"}'
    assert parse_event(line) == Started(id=4, pub="tcp://h:1", sub="tcp://h:2")


@each(
    "line",
    [
        b"",
        b"Traceback (most recent call last):",
        b"{",
        b"[]",
        b"{}",
        b'{"event": 1}',
        b'{"event": "unheard of"}',
        b'{"event": "progress", "step": "many"}',
        b'{"event": "started", "id": 4, "pub": null, "sub": 2}',
        b"\xff\xfe{",
        b'{"event": "failed", "message": "\xff"}',
    ],
)
def test_garbage_is_no_event(line):
    assert parse_event(line) is None


@given(st.binary(max_size=60))
def test_no_line_breaks_the_reader(tail):
    assert parse_event(b"{" + tail) is None
    assert parse_event(Failed(message="x").model_dump_json().encode()) is not None


TOTALS = Totals(count=60, energy=1.5, momentum=(0.0, 0.25, -1.0))
LINK = LinkReport(peer=9, slab=1, sent=20, received=18, lost=2, resent=3, rtt_ms=0.75)
EVENTS = [
    (Started(id=2, pub="tcp://h:1", sub="tcp://h:2"), "tcp://h:1"),
    (Connected(id=7, slab=0, slabs=2, servers=(2, 4)), "slab 0 of 2: connected as id 0x00000007"),
    (ServerCame(id=4, servers=(2, 4)), "server 0x00000004 came; servers 0x00000002, 0x00000004"),
    (ServerLost(id=2, reason="expired"), "server 0x00000002 is gone (expired); servers none"),
    (StepProgress(step=1, steps=9, links=(LINK,)), "step 1/9; slab 1: 20 sent"),
    (
        StepProgress(step=3, steps=9, steps_per_s=2, links=(LINK,)),
        "step 3/9, 2 steps/s; slab 1: 20",
    ),
    (PageLimited(reason="no server"), "the page shows only a part: no server"),
    (PeerGone(slab=1, id=9, reason="timed out"), "slab 1 (id 0x00000009) left: timed out"),
    (Result(steps=9, seconds=1, state_sha256="ab", start=TOTALS, end=TOTALS), "60 spheres"),
    (Finished(steps=9, seconds=1.25), "9 steps in 1.2 s"),
]


@each(("event", "part"), EVENTS)
def test_every_event_has_a_sentence_and_a_json_line(event, part):
    text, json = io.StringIO(), io.StringIO()
    REPORTERS["text"](text, io.StringIO()).report(event)
    REPORTERS["json"](json, io.StringIO()).report(event)
    assert part in text.getvalue()
    assert parse_event(json.getvalue().encode()) == event


def test_a_failure_goes_where_errors_go():
    output, errors = io.StringIO(), io.StringIO()
    REPORTERS["text"](output, errors).report(Failed(message="no such thing"))
    assert (output.getvalue(), errors.getvalue()) == ("", "failed: no such thing\n")
