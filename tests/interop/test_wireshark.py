"""What Wireshark shows of SphTP, by the dissector in `share`, is what our own decoders read.

tshark starts once for most of this, since that takes most of the time.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from sphtp.core.channel.security import Security
from sphtp.errors import RemoteError
from sphtp.testing import Pair
from sphtp.testing.network import Address, SimulatedNetwork
from tests.interop import datagrams
from tests.interop.captures import Capture, Seen
from tests.interop.page import Vector, read_vectors

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

# The port that the user says is SphTP's; everything else is found by the heuristic.
NAMED: Final = 9999
PUB: Final = 8764
VECTORS: Final = {vector.name: vector for vector in read_vectors()}
# What is in front of a frame, or a record, that is alone in its datagram.
PACKET = bytes.fromhex("10100f0e0d0000ffff00000000")
BODY = bytes.fromhex("1cefbeadde000100080000000800000008000000")
UDP_FRONTS: Final = {
    "datagram": b"", "stream": b"", "feedback": b"", "lenient/datagram": b"",
    "malformed/datagram": b"", "malformed/stream": b"", "malformed/feedback": b"",
    "frame": PACKET, "record": BODY, "malformed/record": BODY,
    "sealed": b"", "sealed-stream": b"", "sealed-feedback": b"",
}  # fmt: skip
MESSAGES: Final = (
    "client", "server", "member", "plain", "lenient/client", "lenient/server",
    "malformed/to-server", "malformed/to-client", "vouched", "signed",
)  # fmt: skip
# Right by themselves: what is wrong is who sent them.
RIGHT_FROM_ELSEWHERE: Final = {
    "malformed/to-client/said by a client",
    "malformed/to-client/SNAPSHOT_REQUEST",
}


def of_parts(parts: Any) -> list[Vector]:
    """The vectors of these parts that fit into one packet of IP."""
    return [
        vector
        for vector in VECTORS.values()
        if vector.name.startswith(tuple(f"{part}/" for part in parts)) and len(vector.data) < 65_000
    ]


DATAGRAMS: Final = [v for v in of_parts(UDP_FRONTS) if v.data]
# Those that our decoders read whole. Of a sealed one they read the front; its seal does the rest.
CHANNEL: Final = [
    vector
    for vector in DATAGRAMS
    if vector.name.startswith(("datagram/", "frame/")) and vector.name != "datagram/SEALED"
]
CONTROL: Final = of_parts(MESSAGES)


def datagram_of(vector: Vector) -> bytes:
    (front,) = (UDP_FRONTS[part] for part in UDP_FRONTS if vector.name.startswith(f"{part}/"))
    return front + vector.data


def leaves(named: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every value in named fields, as text, with the last of its names."""
    if isinstance(named, dict):
        for key, value in named.items():
            yield from leaves(value, key)
    elif isinstance(named, list):
        for value in named:
            yield from leaves(value, SINGULAR.get(name, name))
    else:
        yield name, str(named)


# Lists whose items have no names of their own.
SINGULAR: Final = {"payloads": "payload", "digests": "digest"}
# What a vector says of how it was made, and what only a holder of the key sees.
NOT_SHOWN: Final = {
    "secret", "server_secret", "cluster_secret", "message", "to", "plain", "epoch",
}  # fmt: skip


def missing_in(seen: Seen, named: Any, *others: str) -> Counter[tuple[str, str]]:
    """The named values that tshark does not show under their names."""
    shown = Counter[tuple[str, str]]()
    for field, text in seen.fields:
        value = str(int(text, 16)) if text.startswith("0x") else text
        shown.update((field.rpartition(".")[2], form) for form in {value, text.replace(":", "")})
    wanted = (leaf for leaf in leaves(named) if leaf[0] not in NOT_SHOWN.union(others))
    return Counter(wanted) - shown


def mutated(random: Random, data: bytes) -> bytes:
    """Bytes with one of them changed, or cut off, or with others behind them."""
    place = random.randrange(1, len(data))
    match random.randrange(4):
        case 0:
            return data[:place]
        case 1:
            return data + random.randbytes(1 + place % 3)
        case _:
            return data[:place] + random.randbytes(1) + data[place + 1 :]


class WiretappedNetwork(SimulatedNetwork):
    """A network that keeps what is sent over it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.sent: list[tuple[Address, Address, bytes]] = []

    def send(self, now: float, source: Address, destination: Address, datagram: bytes) -> None:
        self.sent.append((source, destination, datagram))
        super().send(now, source, destination, datagram)


def session(security: Security | None) -> list[tuple[Address, Address, bytes]]:
    """All datagrams of a channel that opens, carries messages either way, and closes."""
    pair = Pair(1, security=security)
    pair.network = network = WiretappedNetwork()
    left, right = pair.open()
    pair.transfer(left, right, [bytes([size % 256]) * size for size in (0, 1, 5, 5, 3000)])
    pair.transfer(right, left, [b"back"])
    left.close(pair.now)
    pair.run(2.0)
    return network.sent


class Shown(NamedTuple):
    """All that the tests look at, from one run of tshark."""

    datagrams: list[list[Seen]]
    messages: list[Seen]
    mutations: list[tuple[bytes, list[Seen]]]
    foreign: list[list[Seen]]
    clear: list[tuple[bytes, list[Seen]]]
    sealed: list[tuple[bytes, list[Seen]]]


def cut(random: Random, data: bytes) -> Iterator[bytes]:
    while data:
        size = random.randrange(1, 1400)
        yield data[:size]
        data = data[size:]


def foreign_datagrams(random: Random) -> Iterator[bytes]:
    """Datagrams that begin as those of SphTP do, and others."""
    for first in [*range(0x10, 0x1E)] * 8:
        yield bytes([first]) + random.randbytes(random.randrange(12, 300))
        yield bytes([first]) + bytes(random.randrange(12, 300))
    for _ in range(50):
        yield random.randbytes(random.randrange(1, 300))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    random, capture, sizes = Random(5), Capture(), list[int]()

    def end_of_part() -> None:
        sizes.append(len(capture) - sum(sizes))

    for port, vector in enumerate(DATAGRAMS, 20_000):
        capture.add_datagram(port, NAMED, datagram_of(vector))
    end_of_part()
    messages = [len(v.data).to_bytes(8, "big") + v.data for v in CONTROL]
    for part in cut(random, b"".join([VECTORS["transport/hello PUB"].data, *messages])):
        capture.add_segment(40_000, 40_001, part)
    end_of_part()
    mutations = [mutated(random, datagram_of(v)) for v in CHANNEL * 3]
    for port, data in enumerate(mutations, 21_000):
        capture.add_datagram(port, NAMED, data)
    end_of_part()
    for port, data in enumerate(foreign_datagrams(random), 30_000):
        capture.add_datagram(port, 50_000, data)
    end_of_part()
    clear, sealed = session(None), session(Security())
    for sent, shift in ((clear, 0), (sealed, 5000)):
        for (_, source), (_, destination), data in sent:
            capture.add_datagram(source + shift, destination + shift, data)
        end_of_part()
    seen = capture.read(tmp_path_factory.mktemp("wireshark"), "-d", f"udp.port=={NAMED},sphtp")
    parts = [seen[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(len(sizes))]
    return Shown(
        parts[0],
        list(chain.from_iterable(parts[1])),
        list(zip(mutations, parts[2], strict=True)),
        parts[3],
        list(zip((data for *_, data in clear), parts[4], strict=True)),
        list(zip((data for *_, data in sealed), parts[5], strict=True)),
    )


def is_well_formed(data: bytes) -> bool:
    try:
        datagrams.read_datagram(data)
    except RemoteError:
        return False
    return True


def test_datagrams_of_the_vectors_are_shown_as_they_are(shown: Shown) -> None:
    for vector, (seen,) in zip(DATAGRAMS, shown.datagrams, strict=True):
        is_malformed = vector.name.startswith("malformed/")
        assert seen.is_malformed == is_malformed, vector
        if not is_malformed:
            others = ("key", "number") if vector.name.startswith("sealed") else ()
            assert not missing_in(seen, vector.fields, *others), vector


def test_messages_of_the_vectors_are_shown_as_they_are(shown: Shown) -> None:
    hello, *messages = shown.messages
    assert hello.of("sp.protocol") == ["32"]
    for vector, seen in zip(CONTROL, messages, strict=True):
        is_malformed = (
            vector.name.startswith("malformed/") and vector.name not in RIGHT_FROM_ELSEWHERE
        )
        assert seen.is_malformed == is_malformed, vector
        if not vector.name.startswith("malformed/"):
            # Numbers of later versions are shown as they are, not as what they count as.
            others = ("state", "reason") if vector.name.startswith("lenient/server") else ()
            assert not missing_in(seen, vector.fields, *others), vector


def test_a_datagram_is_malformed_if_our_decoders_say_so(shown: Shown) -> None:
    verdicts = Counter[bool]()
    for data, (seen,) in shown.mutations:
        assert seen.is_malformed != is_well_formed(data), data.hex()
        verdicts[seen.is_malformed] += 1
    assert min(verdicts.values()) > 30


def test_foreign_datagrams_are_not_claimed(shown: Shown) -> None:
    assert not any(shown.foreign)


def test_a_session_in_the_clear_is_found_and_read(shown: Shown) -> None:
    kinds = set[str]()
    for data, (seen,) in shown.clear:
        assert not seen.is_malformed
        assert not missing_in(seen, datagrams.read_datagram(data))
        kinds.update(seen.of("frame.kind"))
    assert {"2", "4", "5", "6"} <= kinds


def test_a_sealed_session_is_found(shown: Shown) -> None:
    for data, (seen,) in shown.sealed:
        assert not seen.is_malformed
        assert not missing_in(seen, datagrams.read_datagram(data))
