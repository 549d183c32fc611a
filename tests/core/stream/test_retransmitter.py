"""Who gets which repair, and when."""

from collections.abc import Iterable
from functools import partial
from itertools import islice

from sphtp.core.stream.events import ALL_RECEIVERS, OutgoingBodies
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import BodyType, Nak, Ncf, StreamData, encode_nak
from sphtp.core.token_bucket import BURST
from tests.core.stream.sources import Listening, Said

FAST = StreamSettings(repair_rate=1e12, nak_budget=10_000.0)
SLOW = StreamSettings(repair_rate=10_000.0)
"""Ten datagrams of repairs at once, then about one in 0.1 s."""


def apart(settings: StreamSettings = FAST, receivers: Iterable[int] = (1, 2)) -> Listening:
    """A source whose receivers are no group."""
    return Listening(settings, receivers=receivers, shared=False)


def ask(room: Listening, receiver: int, first: int, last: int) -> None:
    """Let a receiver ask, and nobody listen yet."""
    body = encode_nak(Nak([Span(first, last)]))
    room.source.handle_feedback_untrusted(room.now, receiver, body)


def whom(said: Iterable[Said], kind: type[StreamData | Ncf]) -> list[int]:
    return [one.receiver for one in said if isinstance(one.body, kind)]


def outgoing(room: Listening) -> Iterable[OutgoingBodies]:
    return iter(partial(room.source.poll_transmit, room.now), None)


def test_who_asks_gets_it_and_nobody_else() -> None:
    room = apart()
    first, second, *_ = room.send_datagrams(3)
    assert set(whom(room.said, StreamData)) == {ALL_RECEIVERS}
    assert whom(room.nak(first, second, receiver=2), StreamData) == [2, 2]
    assert whom(room.nak(first, receiver=1), StreamData) == [1], "it has not had that one"
    assert whom(room.nak(first, receiver=2), Ncf) == [2], "it had it a moment ago"


def test_a_group_gets_all_that_one_of_it_asked_for() -> None:
    room = Listening(FAST, shared=True)
    first, *_ = room.send_datagrams(3)
    assert whom(room.nak(first, receiver=2), StreamData) == [ALL_RECEIVERS]
    assert whom(room.nak(first, receiver=1), Ncf) == [ALL_RECEIVERS]


def test_each_has_the_repair_rate_for_itself() -> None:
    room = apart(SLOW)
    sqns = room.send_datagrams(100)
    greedy = room.nak(Span(sqns[0], sqns[-1]), receiver=1)
    assert BURST <= len(whom(greedy, StreamData)) < 2 * BURST
    modest = room.nak(Span(sqns[50], sqns[54]), receiver=2)
    assert whom(modest, StreamData) == [2] * 5
    assert not whom(modest, Ncf), "it need not wait"
    before = len(room.said)
    room.advance(1.0)
    assert 8 <= len(whom(room.said[before:], StreamData)) <= 12


def test_all_of_them_and_new_data_take_turns() -> None:
    room = apart(FAST, receivers=range(1, 4))
    sqns = room.send_datagrams(400, size=1300)
    room.source.send_many(room.now, 0, [bytes(1300)] * 400)
    for receiver in (1, 2, 3):
        ask(room, receiver, sqns[0], sqns[-1])
    turns = list(islice(outgoing(room), 12))
    order = [one.receiver for one in turns]
    assert order == [ALL_RECEIVERS, 1, 2, 3] * 3
    assert len({len(one.bodies) for one in turns}) == 1, "each a batch"


def test_a_turn_goes_on_where_the_last_one_ended() -> None:
    """A socket that takes little makes nobody wait for those who were served already."""
    room = apart(FAST, receivers=range(1, 4))
    sqns = room.send_datagrams(400, size=1300)
    for receiver in (1, 2, 3):
        ask(room, receiver, sqns[0], sqns[-1])
    order = list[int]()
    for _ in range(6):
        order += [one.receiver for one in islice(outgoing(room), 1)]
        room.source.handle_timeout(room.now)
    assert order == [1, 2, 3] * 2


def test_who_has_left_gets_nothing_and_begins_anew() -> None:
    room = apart(SLOW)
    sqns = room.send_datagrams(40)
    ask(room, 1, sqns[0], sqns[-1])
    ask(room, 2, sqns[0], sqns[-1])
    room.source.handle_left(room.now, 1)
    room.listen()
    room.advance(1.0)
    assert ALL_RECEIVERS in whom(room.said, StreamData)
    assert 1 not in (one.receiver for one in room.said)
    assert room.source.statistics().waiting_repairs < len(sqns)
    room.source.handle_joined(room.now, 1)
    assert whom(room.nak(sqns[0], receiver=1), StreamData) == [1]


def test_when_it_is_over_nobody_is_repaired() -> None:
    room = apart(SLOW)
    sqns = room.send_datagrams(40)
    room.nak(Span(sqns[0], sqns[-1]), receiver=2)
    room.source.close(room.now)
    room.advance(room.settings.linger)
    room.forget()
    room.advance(60.0)
    assert not room.repairs
    assert room.source.statistics().waiting_repairs == 0


def test_ncfs_are_said_before_repairs_and_leave_them_room() -> None:
    room = apart(FAST)
    sqns = room.send_datagrams(100)
    ask(room, 1, sqns[0], sqns[9])
    room.listen()
    ask(room, 1, sqns[0], sqns[19])
    (reply,) = outgoing(room)
    assert reply.receiver == 1
    assert [body[0] for body in reply.bodies] == [BodyType.NCF] + [BodyType.DATA] * 10


def test_one_who_asks_for_much_delays_no_other() -> None:
    room = apart(SLOW, receivers=range(1, 10))
    sqns = room.send_datagrams(400)
    for receiver in range(1, 9):
        room.nak(Span(sqns[0], sqns[-1]), receiver=receiver)
    room.advance(0.05)
    assert whom(room.nak(sqns[-1], receiver=9), StreamData) == [9]
