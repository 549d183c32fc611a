"""Shared memory: the ledger of regions against a list, and what a lying peer may write."""

import random
from collections import deque
from dataclasses import replace

import pytest

from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    decode_accept_untrusted,
    decode_connect_untrusted,
    encode_accept,
    encode_connect,
)
from sphtp.core.channel.settings import ChannelSettings, Lane
from sphtp.core.channel.shared_memory import (
    COMMON,
    DATA_START,
    PAGE,
    SLOTS,
    Region,
    RegionLedger,
    Rendezvous,
    SegmentTerms,
    decode_descriptor_untrusted,
    decode_hello_untrusted,
    decode_segment_untrusted,
    draw_rendezvous,
    encode_descriptor,
    encode_hello,
    encode_segment,
)
from sphtp.errors import RemoteError, StateError
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow, offer
from tests.soaked import soaked

MARKER = bytes(range(16))
HERE = Rendezvous(0x01020304, 0x1122334455667788)


@pytest.mark.parametrize("seed", [*range(5), *soaked(range(5, 200))])
def test_regions_never_overlap_and_all_room_comes_back(seed: int) -> None:
    random_ = random.Random(seed)
    pages = random_.randint(1, 64)
    ledger, words = RegionLedger(DATA_START + pages * PAGE), [0] * SLOTS
    used: list[Region] = []
    for _ in range(400):
        if random_.random() < 0.6:
            size = random_.randint(1, random_.choice((1, 3, 20)) * PAGE)
            region = ledger.allocate(size)
            free = set(range(pages)) - {page for other in used for page in pages_of(other)}
            if region is None:
                assert not fits(free, -(-size // PAGE)), f"seed {seed}"
                continue
            assert set(pages_of(region)) <= free, f"seed {seed}"
            used.append(region)
        elif used:
            # Freed out of order; and words that mean nothing change nothing.
            region = used.pop(random_.randrange(len(used)))
            words[region.slot] = region.generation
            if used and random_.random() < 0.5:
                other = random_.choice(used)
                words[other.slot] = other.generation + random_.choice((-1, 1, 7))
            assert ledger.reclaim(words, is_thorough=True) == 1, f"seed {seed}"
        assert len(ledger) == len(used)
        assert ledger.free == (pages - sum(len(pages_of(it)) for it in used)) * PAGE
    for region in used:
        words[region.slot] = region.generation
    ledger.reclaim(words)
    assert (len(ledger), ledger.free) == (0, pages * PAGE)
    assert ledger.allocate(pages * PAGE) is not None


def pages_of(region: Region) -> range:
    start = (region.start - DATA_START) // PAGE
    return range(start, start + -(-region.size // PAGE))


def fits(free: set[int], number: int) -> bool:
    return any(set(range(page, page + number)) <= free for page in free)


def test_slots_are_bounded_and_have_a_new_generation_each_time() -> None:
    ledger, words = RegionLedger(DATA_START + 2 * SLOTS * PAGE), [0] * SLOTS
    regions = [region for _ in range(SLOTS) if (region := ledger.allocate(1))]
    assert len(regions) == SLOTS
    assert ledger.allocate(1) is None
    first = regions[0]
    words[first.slot] = first.generation
    assert ledger.reclaim(words) == 1
    again = ledger.allocate(1)
    assert again is not None
    assert (again.slot, again.start) == (first.slot, first.start)
    assert again.generation != first.generation
    # The word of the generation before does not free it.
    assert ledger.reclaim(words, is_thorough=True) == 0


def test_a_descriptor_has_to_lie_within_segment_and_bound() -> None:
    size = DATA_START + 4 * PAGE
    region = Region(3, 9, DATA_START + 10, PAGE)
    payload = encode_descriptor(MARKER, region)
    assert decode_descriptor_untrusted(payload, (size, 0), PAGE) == region
    assert payload.startswith(MARKER)
    wrong = (
        region._replace(slot=SLOTS),
        region._replace(slot=COMMON - 1),
        region._replace(slot=COMMON),
        region._replace(start=DATA_START - 1),
        region._replace(start=2**64 - 1),
        region._replace(start=size - PAGE + 1),
        region._replace(size=0),
        region._replace(size=PAGE + 1),
        region._replace(size=2**32 - 1),
    )
    for other in wrong:
        with pytest.raises(RemoteError):
            decode_descriptor_untrusted(encode_descriptor(MARKER, other), (size, 0), PAGE)
    for cut in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(RemoteError):
            decode_descriptor_untrusted(cut, (size, 0), PAGE)


def test_a_descriptor_of_the_common_segment_has_to_lie_within_that() -> None:
    sizes = DATA_START + PAGE, DATA_START + 4 * PAGE
    region = Region(COMMON + 3, 9, DATA_START + 2 * PAGE, PAGE)
    assert region.is_common
    assert decode_descriptor_untrusted(encode_descriptor(MARKER, region), sizes, PAGE) == region
    for other in (
        region._replace(slot=3),
        region._replace(slot=COMMON + SLOTS),
        region._replace(start=sizes[1] - PAGE + 1),
        region._replace(start=DATA_START - 1),
    ):
        with pytest.raises(RemoteError):
            decode_descriptor_untrusted(encode_descriptor(MARKER, other), sizes, PAGE)


def test_packets_of_the_rendezvous_are_read_whole_or_refused() -> None:
    alone = SegmentTerms(MARKER, DATA_START + PAGE)
    hello, segment = encode_hello(HERE.nonce), encode_segment(alone)
    assert decode_hello_untrusted(hello) == HERE.nonce
    for terms in (alone, alone._replace(common_size=DATA_START + 2 * PAGE)):
        assert decode_segment_untrusted(encode_segment(terms)) == terms
    for cut in (b"", hello[:-1], hello + b"\0", b"X" + hello[1:]):
        with pytest.raises(RemoteError):
            decode_hello_untrusted(cut)
    for size in (0, DATA_START, DATA_START + 1, 2**33):
        with pytest.raises(RemoteError):
            decode_segment_untrusted(encode_segment(SegmentTerms(MARKER, size)))
        if size:
            with pytest.raises(RemoteError):
                decode_segment_untrusted(encode_segment(alone._replace(common_size=size)))
    with pytest.raises(RemoteError):
        decode_segment_untrusted(segment + b"\0")


@pytest.mark.parametrize("digests", [(), (1, 2, 3), tuple(range(200))])
def test_a_connect_carries_a_rendezvous_in_its_padding(digests: tuple[int, ...]) -> None:
    size = 548 if digests else 64
    plain = Connect(7, 0, offer(77), digests, size)
    sent = replace(plain, rendezvous=HERE)
    read = decode_connect_untrusted(encode_connect(sent))
    assert (read.rendezvous, read.token, read.offer, read.size) == (HERE, 7, plain.offer, size)
    assert read.digests == digests[: len(read.digests)]
    assert decode_connect_untrusted(encode_connect(plain)).rendezvous is None
    # Padding of any other bytes is padding; and a node without a socket has none.
    filled = encode_connect(Connect(7, 0, offer(77), (), 64))[:48] + b"\xff" * 16
    assert decode_connect_untrusted(filled).rendezvous is None
    assert draw_rendezvous(0, random.Random(1)) is None


def test_an_accept_carries_one_behind_its_offer_and_nothing_else() -> None:
    sent = Accept(7, offer(77), HERE)
    data = encode_accept(5, sent)
    assert decode_accept_untrusted(data) == sent
    # No answer is longer than the shortest question.
    assert len(data) <= 64
    for wrong in (data[:-1], data + b"\0", data[:-16] + b"\xff" * 16):
        with pytest.raises(RemoteError):
            decode_accept_untrusted(wrong)


def test_a_closed_channel_counts_no_message_beside_packets() -> None:
    pair = Pair(1)
    left, _ = pair.open()
    left.close(pair.now)
    with pytest.raises(StateError):
        left.port.send_beside(0, 100, 100)
    statistics = left.port.statistics()
    assert (statistics.messages_sent, statistics.shared_memory_sent) == (0, 0)


@pytest.mark.parametrize("seed", [*range(4), *soaked(range(4, 40))])
def test_messages_beside_packets_keep_the_order_of_their_lane(seed: int) -> None:
    random_ = random.Random(seed)
    lanes = (Lane(), Lane(ordered=False))
    settings = ChannelSettings(lanes=lanes, max_datagram=600, base_datagram=600, send_buffer=64)
    pair = Pair(seed, Faults(delay=0.01, loss=0.1, jitter=0.01), settings)
    left, right = pair.open()
    sent: list[list[bytes]] = [[], []]
    came: list[bytes] = []
    beside: deque[tuple[int, int, bytes]] = deque()
    passed = 0
    for number in range(400):
        lane = random_.randrange(2)
        # Some do not fit a packet.
        message = bytes((lane,)) + number.to_bytes(4, "big") * random_.choice((1, 50, 400))
        if random_.random() < 0.6 and left.port.may_send_beside(lane, len(message)):
            beside.append((*left.port.send_beside(lane, len(message), len(message)), message))
            passed += 1
        elif random_.random() < 0.2:
            follow(left, message, pair.now, lane=lane, deadline=pair.now + random_.random() * 0.1)
            continue
        elif not left.port.queue((message,), lane):
            continue
        sent[lane].append(message)
        pair.touch(left)
        if random_.random() < 0.3:
            pair.run(random_.choice((0.0, 0.005, 0.1)))
        for _ in range(random_.randrange(3)):
            if beside and right.port.deliver_beside_untrusted(*beside[0]):
                beside.popleft()
        came += pair.receive(right)
    while beside and right.port.deliver_beside_untrusted(*beside[0]):
        beside.popleft()
    pair.run(20.0)
    came += pair.receive(right)
    assert passed > 20, f"seed {seed}"
    assert (left.port.statistics().waiting, len(beside)) == (0, 0), f"seed {seed}"
    for lane, messages in enumerate(sent):
        here = [message for message in came if message[0] == lane]
        assert len(set(here)) == len(here), f"seed {seed}"
        assert set(messages) <= set(here), f"seed {seed}"
        if not lane:
            assert [message for message in here if message in set(messages)] == messages


def test_a_message_beside_packets_in_a_lane_that_cannot_be_is_no_message() -> None:
    left, right = Pair(1).open()
    with pytest.raises(RemoteError):
        right.port.deliver_beside_untrusted(200, 0, b"")
    assert right.port.deliver_beside_untrusted(*left.port.send_beside(0, 1, 1), b"x")
    # One that came before is not delivered once more, and one far ahead stays where it is.
    assert right.port.deliver_beside_untrusted(0, 0, b"x")
    assert not right.port.deliver_beside_untrusted(0, 20_000, b"y")
    assert right.port.receive_many(10) == [b"x"]
