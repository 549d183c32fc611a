"""What nobody has signed draws no answer that is longer than itself: a source may be forged."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.noise import Answer, encode_answer
from sphtp.core.channel.path_mtu import FLOOR
from sphtp.core.channel.protection import SEAL_OVERHEAD
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.stateless_reset import RESET_SIZE
from sphtp.core.datagrams import FRONT, KINDS, VERSION, Datagrams, Kind, encode_front
from sphtp.core.schema import Schema
from tests.attack.channel.mallory import Knocking, answers, kind_of, watch
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity
from tests.profiles import brisk

KNOWN = PeerPin(identity("right").public)
AWAY = ("10.6.6.6", 666)


class Scene:
    """A pair with an open channel and an attempt under way, and all that was ever sent."""

    def __init__(self, known: bool) -> None:
        self.pair = SealedPair(1)
        self.seen = watch(self.pair)
        expectation = KNOWN if known else PeerPin()
        self.left, self.right = self.pair.open(expectation)
        self.pair.run(0.5)
        self.attempt = self.pair.left.dial(self.pair.now, [RIGHT], 0, expectation)
        self.ids = [0, 1, self.left.connection_id, self.right.connection_id]
        self.ids.append(self.attempt.connection_id)
        self.tokens = [0, self.left.handshake.token, self.attempt.handshake.token]


first_bytes = st.one_of(
    st.sampled_from([VERSION << 4 | kind for kind in KINDS]), st.integers(0, 255)
)


@brisk
@given(st.booleans(), st.data())
def test_nothing_made_up_is_answered_in_more_bytes(known: bool, data: st.DataObject):
    scene = Scene(known)
    front = FRONT.pack(data.draw(first_bytes), data.draw(st.sampled_from(scene.ids)))
    opener = data.draw(st.sampled_from(scene.ids)).to_bytes(4, "little")
    token = data.draw(st.sampled_from(scene.tokens)).to_bytes(8, "little")
    middle = data.draw(st.sampled_from([b"", token, opener + token, opener + token + b"\2"]))
    size = data.draw(st.integers(0, 300))
    datagram = (front + middle + data.draw(st.binary(max_size=60)).ljust(size, b"\0"))[
        : data.draw(st.integers(0, 400))
    ]
    check(scene, data.draw(st.sampled_from([LEFT, RIGHT, AWAY])), datagram)


@brisk
@given(st.booleans(), st.data())
def test_nothing_seen_and_altered_is_answered_in_more_bytes(known: bool, data: st.DataObject):
    """Or not altered: what is sent again draws no more."""
    scene = Scene(known)
    scene.pair.run(data.draw(st.floats(0, 0.5)))
    *_, datagram = data.draw(st.sampled_from(scene.seen))
    size = data.draw(st.integers(0, len(datagram)) | st.just(len(datagram)))
    flips = data.draw(st.lists(st.integers(0, 8 * len(datagram) - 1), max_size=2))
    altered = int.from_bytes(datagram, "little")
    for flip in flips:
        altered ^= 1 << flip
    changed = altered.to_bytes(len(datagram), "little")[:size]
    source = data.draw(st.sampled_from([LEFT, RIGHT, AWAY]))
    # A true answer from where it was asked for goes on with the handshake.
    assume((source, kind_of(datagram)) != (RIGHT, Kind.WELCOME) or changed != datagram)
    check(scene, source, changed)


def check(scene: Scene, source: tuple[str, int], datagram: bytes) -> None:
    for endpoint in (scene.pair.left, scene.pair.right):
        # What it had to say without being asked.
        answers(scene.pair, endpoint, source, b"")
        said = answers(scene.pair, endpoint, source, datagram)
        if datagram and kind_of_any(datagram) is Kind.COOKIE and endpoint is scene.pair.left:
            # Only who read a GREET can draw another, and once until the endpoint asks again.
            said = answers(scene.pair, endpoint, source, datagram)
        assert sum(map(len, said)) <= len(datagram), (datagram.hex(), [it.hex() for it in said])


def kind_of_any(datagram: bytes) -> Kind | None:
    return KINDS.get(datagram[0] & 0x0F)


def test_a_confirm_that_is_made_up_draws_nothing():
    pair = SealedPair(1)
    knocking = Knocking(pair, pair.right, LEFT, 5, 6)
    (welcome,) = knocking.enter()
    assert len(knocking.confirm(welcome)) == 1
    token = encode_front(Kind.CONFIRM, 0) + (5).to_bytes(4, "little") + (6).to_bytes(8, "little")
    for content in (b"", b"x", bytes(100)):
        assert knocking.send(token + content) == []
    assert pair.right.handshake_counters.forged == 3


def test_cookies_that_are_made_up_draw_one_greet_until_the_endpoint_asks_again():
    pair = SealedPair(1)
    pair.endpoints.pop(RIGHT)
    left = pair.left.dial(0.0, [RIGHT], 0, KNOWN)
    pair.run(0.05)
    for _ in range(3):
        said = []
        for number in range(100):
            content = number.to_bytes(16, "little")
            answer = Answer(left.handshake.token, content)
            cookie = encode_answer(Kind.COOKIE, left.connection_id, answer)
            said += answers(pair, pair.left, RIGHT, cookie)
        assert len(said) == 1
        pair.run(1)


def reset_askers(connection_id: int) -> Sequence[Callable[[int], bytes]]:
    return (
        lambda size: encode_front(Kind.SEALED, connection_id).ljust(size, b"\0"),
        lambda size: encode_front(Kind.WELCOME, connection_id).ljust(size, b"\0"),
    )


def test_a_reset_is_shorter_than_what_it_answers():
    for ask in reset_askers(4711):
        pair = SealedPair(1)
        for size in range(1, 100):
            said = answers(pair, pair.right, (f"10.7.7.{size}", 7), ask(size))
            assert all(len(it) == RESET_SIZE < size for it in said)
            assert bool(said) == (
                size > RESET_SIZE and (size >= SEAL_OVERHEAD or ask(size)[0] != 0x18)
            )


def test_many_that_came_as_a_row_draw_one_reset_and_small_ones_none():
    pair = SealedPair(1)
    small = encode_front(Kind.SEALED, 4711)[:3] * 100
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams(AWAY, small, 3))
    assert pair.right.poll_transmit(pair.now) is None
    large = encode_front(Kind.SEALED, 4711).ljust(40, b"\0") * 60
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams(AWAY, large, 40))
    row = pair.right.poll_transmit(pair.now)
    assert row is not None
    assert len(row.data) == RESET_SIZE
    assert pair.right.poll_transmit(pair.now) is None
    assert pair.right.counters.unknown == 60


@pytest.mark.parametrize("known", [True, False])
def test_nobody_is_shown_the_proof_of_a_channel_that_lives(known: bool):
    scene = Scene(known)
    ends: list[tuple[Connection, int]] = [(scene.left, 0), (scene.attempt, 0), (scene.right, 1)]
    for connection, side in ends:
        endpoint = (scene.pair.left, scene.pair.right)[side]
        for ask in reset_askers(connection.connection_id):
            assert answers(scene.pair, endpoint, AWAY, ask(200)) == []
    assert {kind_of(it) for *_, it in scene.seen}.isdisjoint({Kind.RESET})


def test_the_largest_greet_fits_any_path():
    for expectation in (KNOWN, PeerPin()):
        pair = SealedPair(1, schema=Schema([f"line {number}" for number in range(2000)]))
        seen = watch(pair)
        pair.open(expectation)
        largest = max(len(it) for *_, it in seen if kind_of(it) is not Kind.SEALED)
        assert FLOOR - 60 < largest <= FLOOR


def test_who_asks_faster_than_the_socket_sends_takes_no_memory() -> None:
    """Hellos of another version, thousands of them while nothing can leave."""
    pair = SealedPair()
    backlog = ChannelSettings().backlog
    for number in range(20 * backlog):
        hello = encode_front(Kind.GREET, 0) + number.to_bytes(4, "little") + bytes(8)
        hello = bytes([(VERSION + 1) << 4 | Kind.GREET]) + hello[1:].ljust(1200, b"?")
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, hello))
    answers_left = 0
    while pair.right.poll_transmit(pair.now) is not None:
        answers_left += 1
    assert 0 < answers_left <= backlog
