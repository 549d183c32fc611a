import io

import pytest

from sphtp_client.simulation.events import (
    Connected,
    Failed,
    Finished,
    LinkReport,
    PeerLeft,
    Progress,
    Result,
    ServerCame,
    ServerLost,
    Started,
    Totals,
    parse_event,
)
from sphtp_client.simulation.reporter import REPORTERS

TOTALS = Totals(count=60, energy=1.5, momentum=(0.0, 0.25, -1.0))
LINK = LinkReport(peer=9, slab=1, sent=20, received=18, lost=2, resent=3, rtt_ms=0.75)
EVENTS = [
    (Started(id=2, pub="tcp://h:1", sub="tcp://h:2"), "tcp://h:1"),
    (Connected(id=7, slab=0, slabs=2, servers=(2, 4)), "slab 0 of 2: connected as id 0x00000007"),
    (ServerCame(id=4, servers=(2, 4)), "server 0x00000004 came; servers 0x00000002, 0x00000004"),
    (ServerLost(id=2, reason="expired"), "server 0x00000002 is gone (expired); servers none"),
    (Progress(step=1, steps=9, links=(LINK,)), "step 1/9; slab 1: 20 sent"),
    (Progress(step=3, steps=9, steps_per_s=2, links=(LINK,)), "step 3/9, 2 steps/s; slab 1: 20"),
    (PeerLeft(slab=1, id=9, reason="timed out"), "slab 1 (id 0x00000009) left: timed out"),
    (Result(steps=9, seconds=1, state_sha256="ab", start=TOTALS, end=TOTALS), "60 spheres"),
    (Finished(steps=9, seconds=1.25), "9 steps in 1.2 s"),
]


@pytest.mark.parametrize(("event", "part"), EVENTS)
def test_every_event_has_a_sentence_and_a_json_line(event, part):
    text, json = io.StringIO(), io.StringIO()
    REPORTERS["text"](text, io.StringIO()).say(event)
    REPORTERS["json"](json, io.StringIO()).say(event)
    assert part in text.getvalue()
    assert parse_event(json.getvalue().encode()) == event


def test_a_failure_goes_where_errors_go():
    output, errors = io.StringIO(), io.StringIO()
    REPORTERS["text"](output, errors).say(Failed(message="no such thing"))
    assert (output.getvalue(), errors.getvalue()) == ("", "failed: no such thing\n")
