import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.simulation.events import Failed, LinkReport, Progress, Started, parse_event


def test_what_is_written_is_read():
    link = LinkReport(peer=9, slab=1, sent=2, received=3, lost=0, resent=0, rtt_ms=None)
    event = Progress(step=3, steps=9, steps_per_s=2.5, servers=(2,), links=(link,))
    assert parse_event(event.model_dump_json().encode()) == event


def test_a_log_line_of_a_server_is_read_and_its_other_keys_are_skipped():
    line = b'{"event": "started", "id": 4, "pub": "tcp://h:1", "sub": "tcp://h:2", "level": "info"}'
    assert parse_event(line) == Started(id=4, pub="tcp://h:1", sub="tcp://h:2")


@pytest.mark.parametrize(
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
