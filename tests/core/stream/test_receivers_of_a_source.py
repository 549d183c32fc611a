"""The receivers of a source: what they have, and how often one that asks too much is told of."""

from sphtp.core.stream.flow_control import SourceReceivers
from sphtp.core.stream.wire import StatusMessage


def test_it_is_reported_once_in_an_interval() -> None:
    audience = SourceReceivers(10.0)
    audience.join(0.0, 1, lead=5)
    listener = audience.find(1)
    assert listener is not None
    assert [listener.report(at, 10.0) for at in (0.0, 5.0, 9.9, 10.0, 11.0)] == [
        True, False, False, True, False,
    ]  # fmt: skip


def test_who_joins_again_gets_no_new_budget() -> None:
    audience = SourceReceivers(10.0)
    audience.join(0.0, 1, lead=5)
    listener = audience.find(1)
    audience.join(0.0, 1, lead=9)
    assert audience.find(1) is listener
    assert audience.behind(9) == 4


def test_the_slowest_counts() -> None:
    audience = SourceReceivers(10.0)
    assert audience.behind(9) == 0, "nobody is behind where nobody is"
    audience.join(0.0, 1, lead=5)
    audience.join(0.0, 2, lead=7)
    assert audience.behind(9) == 4
    audience.confirm(0.0, 1, StatusMessage(20, 0))
    assert audience.behind(9) == 2
    audience.leave(2)
    audience.leave(2)
    assert audience.behind(9) == 0
    assert len(audience) == 1
