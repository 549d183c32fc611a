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

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import Header, Messages, encode_data, encode_frames
from sphtp.core.channel.security import KeyLog, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Kind, encode_front
from sphtp.core.secure.seal import Sealer
from sphtp.core.stream.wire import STREAM_HEADER
from sphtp.errors import RemoteError
from sphtp.testing.network import Address, SimulatedNetwork
from sphtp.testing.pair import LEFT, RIGHT, Stage
from tests.interop import datagrams
from tests.interop.captures import Capture, Seen
from tests.interop.page import Vector, read_vectors
from tests.interop.spoken import read_message

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
# A datagram of an epoch that follows from that of its key.
EPOCHS: Final = [VECTORS["sealed/DATA, the first one under the next key"]]
MESSAGES_SENT: Final = [bytes([size % 256]) * size for size in (0, 1, 5, 5, 3000)]
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
# Those that a decoder judges whole: the size of these two is judged by what handles them.
CHANNEL: Final = [
    vector
    for vector in DATAGRAMS
    if vector.name.startswith(("datagram/", "frame/"))
    and vector.name not in ("datagram/SEALED", "datagram/COOKIE")
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


class KeyLines:
    """A key log as text."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, connection_id: int, key: bytes) -> None:
        self.text += f"SPHTP_CHANNEL_KEY {connection_id:08x} {key.hex()}\n"


def session(security: Security | None, key_log: KeyLog) -> list[tuple[Address, Address, bytes]]:
    """All datagrams of a channel that opens, carries messages either way, and closes."""
    # Without large probes of the path: to open them is work for seconds.
    settings = ChannelSettings(max_datagram=1400)
    stage = Stage(
        1,
        {
            LEFT: Endpoint(Random(1), settings, security=security, key_log=key_log),
            # One side logs the keys of both directions.
            RIGHT: Endpoint(Random(2), settings, security=security),
        },
    )
    stage.network = network = WiretappedNetwork()
    left, right = stage.connect(LEFT, RIGHT)
    stage.transfer(left, right, MESSAGES_SENT)
    stage.transfer(right, left, [b"back"])
    left.close(stage.now)
    stage.run(2.0)
    return network.sent


class Shown(NamedTuple):
    """All that the tests look at, from one run of tshark."""

    datagrams: list[list[Seen]]
    messages: list[Seen]
    mutations: list[tuple[bytes, list[Seen]]]
    mutated_messages: list[tuple[bytes, list[Seen]]]
    foreign: list[list[Seen]]
    clear: list[tuple[bytes, list[Seen]]]
    sealed: list[tuple[bytes, list[Seen]]]
    recorded: list[tuple[str, list[Seen]]]
    epochs: list[list[Seen]]
    streams: list[list[Seen]]
    rows: list[list[Seen]]


def cut(random: Random, data: bytes) -> Iterator[bytes]:
    while data:
        size = random.randrange(1, 1400)
        yield data[:size]
        data = data[size:]


def recorded_datagrams(key_log: KeyLog) -> Iterator[tuple[str, bytes]]:
    """What is inside the datagrams of the recorded sessions, and each datagram."""
    for vector in (v for v in VECTORS.values() if v.name.startswith("session/")):
        for side in ("opener", "answerer"):
            key = bytes.fromhex(vector.fields["keys"][f"to_{side}"])
            key_log.write(vector.fields[side]["connection_id"], key)
        at = 0
        for sent in vector.fields["datagrams"]:
            is_sealed = sent["kind"] == Kind.SEALED
            yield sent["inside"] if is_sealed else "", vector.data[at : at + sent["size"]]
            at += sent["size"]


def stream_datagrams(key_log: KeyLog) -> Iterator[tuple[dict[str, Any], bytes]]:
    """A stream and the channel in which its keys travel: what is inside, and each datagram."""
    channel, key = 0x0BADCAFE, bytes(range(32))
    key_log.write(channel, key)
    sealer = Sealer(key, encode_front(Kind.SEALED, channel))
    body = VECTORS["stream/DATA"].data[STREAM_HEADER.size :]

    def membership(name: str, sequence: int) -> tuple[dict[str, Any], bytes]:
        messages = Messages(0, sequence, [VECTORS[f"membership/{name}"].data])
        packet = encode_data(channel, Header(sequence, 0, 0)) + encode_frames([messages])
        return datagrams.read_datagram(packet), sealer.seal(packet, len(packet))[0]

    yield membership("WELCOME", 0)
    yield VECTORS["stream/DATA"].fields | {"key": 2}, VECTORS["sealed-stream/DATA"].data
    yield {"type": 5, "flags": 0}, VECTORS["sealed-feedback/STATUS"].data
    yield membership("KEY", 1)
    named = VECTORS["membership/KEY"].fields
    front = VECTORS["stream/DATA"].data[: STREAM_HEADER.size - 1] + bytes([named["number"]])
    stream = Sealer(bytes.fromhex(named["key"]), front)
    yield VECTORS["stream/DATA"].fields | {"key": 3}, stream.seal(body, len(body))[0]


def rows(key_log: KeyLog) -> Iterator[tuple[list[dict[str, Any]], bytes]]:
    """Datagrams of one size that the system gets in one piece: what they are, and the piece."""
    channel, key = 0x0BADBEEF, bytes(range(1, 33))
    key_log.write(channel, key)
    payloads = [bytes([number]) * 200 for number in range(5)] + [b"the last one is shorter"]
    packets = [
        encode_data(channel, Header(0xFFFD + n & 0xFFFF, 0, 0))
        + encode_frames([Messages(0, n, [payload])])
        for n, payload in enumerate(payloads)
    ]
    named = [datagrams.read_datagram(packet) for packet in packets]
    yield named, b"".join(packets)
    sealer = Sealer(key, encode_front(Kind.SEALED, channel), 0xFFFD)
    yield named, sealer.seal(b"".join(packets), len(packets[0]))[0]


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
    mutated_messages = [mutated(random, vector.data) for vector in CONTROL]
    for data in mutated_messages:
        capture.add_segment(NAMED, 40_002, len(data).to_bytes(8, "big") + data)
    end_of_part()
    for port, data in enumerate(foreign_datagrams(random), 30_000):
        capture.add_datagram(port, 50_000, data)
    end_of_part()
    keys = KeyLines()
    clear, sealed = session(None, keys), session(Security(), keys)
    for sent, shift in ((clear, 0), (sealed, 5000)):
        for (_, source), (_, destination), data in sent:
            capture.add_datagram(source + shift, destination + shift, data)
        end_of_part()
    recorded = list(recorded_datagrams(keys))
    for _, data in recorded:
        capture.add_datagram(NAMED, 9998, data)
    end_of_part()
    for vector in EPOCHS:
        keys.write(vector.fields["connection_id"], bytes.fromhex(vector.fields["key"]))
        capture.add_datagram(NAMED, 9997, vector.data)
    end_of_part()
    for _, data in stream_datagrams(keys):
        capture.add_datagram(NAMED, 9996, data)
    end_of_part()
    for port, (_, row) in enumerate(rows(keys), 9990):
        capture.add_datagram(port, port, row)
    end_of_part()
    folder = tmp_path_factory.mktemp("wireshark")
    log = folder / "keys"
    log.write_text(f"# a line of another kind\n{keys.text}")
    seen = capture.read(
        folder,
        *("-d", f"udp.port=={NAMED},sphtp", "-d", f"tcp.port=={NAMED},sphtp"),
        *("-o", f"sphtp.key_log_file:{log}"),
    )
    parts = [seen[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(len(sizes))]
    return Shown(
        parts[0],
        list(chain.from_iterable(parts[1])),
        list(zip(mutations, parts[2], strict=True)),
        list(zip(mutated_messages, parts[3], strict=True)),
        parts[4],
        list(zip((data for *_, data in clear), parts[5], strict=True)),
        list(zip((data for *_, data in sealed), parts[6], strict=True)),
        list(zip((inside for inside, _ in recorded), parts[7], strict=True)),
        parts[8],
        parts[9],
        parts[10],
    )


def is_well_formed(data: bytes) -> bool:
    try:
        datagrams.read_datagram(data)
    except RemoteError:
        return False
    return True


def is_read(message: bytes) -> bool:
    """Return True if a client or a server reads this message of the control plane."""
    taken = (read_message(message, for_client=which)[0] for which in (True, False))
    return any(one is not None for one in taken)


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
    assert min(verdicts.values()) > 20


def test_a_message_is_malformed_if_neither_a_client_nor_a_server_reads_it(shown: Shown) -> None:
    verdicts = Counter[bool]()
    for data, (seen,) in shown.mutated_messages:
        assert seen.is_malformed != is_read(data), data.hex()
        verdicts[seen.is_malformed] += 1
    assert min(verdicts.values()) > 20


def test_foreign_datagrams_are_not_claimed(shown: Shown) -> None:
    assert not any(shown.foreign)


def test_a_session_in_the_clear_is_found_and_read(shown: Shown) -> None:
    kinds = set[str]()
    for data, (seen,) in shown.clear:
        assert not seen.is_malformed
        assert not missing_in(seen, datagrams.read_datagram(data))
        kinds.update(seen.of("frame.kind"))
    assert {"2", "4", "5", "6"} <= kinds


def test_a_sealed_session_is_found_and_opened_with_the_key_log(shown: Shown) -> None:
    payloads = list[str]()
    for data, (seen,) in shown.sealed:
        assert not seen.is_malformed
        assert not missing_in(seen, datagrams.read_datagram(data))
        assert (len(seen.of("kind")) > 1) == (data[0] == 0x18)
        payloads += seen.of("frame.payload")
    for message in (*MESSAGES_SENT[:4], b"back"):
        assert message.hex(":") in payloads


def test_recorded_sessions_are_opened_with_their_keys(shown: Shown) -> None:
    opened = 0
    for inside, (seen,) in shown.recorded:
        assert not seen.is_malformed
        if inside:
            named = datagrams.read_datagram(bytes.fromhex(inside))
            assert not missing_in(seen, named, "content")
            opened += 1
    assert opened >= 9


def test_keys_of_later_epochs_follow_from_the_first(shown: Shown) -> None:
    for vector, (seen,) in zip(EPOCHS, shown.epochs, strict=True):
        named = datagrams.read_datagram(bytes.fromhex(vector.fields["plain"]))
        assert not missing_in(seen, named)


def test_streams_are_opened_with_the_keys_that_their_channels_carry(shown: Shown) -> None:
    for (named, _), (seen,) in zip(stream_datagrams(KeyLines()), shown.streams, strict=True):
        assert not seen.is_malformed
        assert not missing_in(seen, named)


def test_datagrams_in_a_row_are_shown_one_by_one(shown: Shown) -> None:
    for (named, _), seen in zip(rows(KeyLines()), shown.rows, strict=True):
        for one, datagram in zip(named, seen, strict=True):
            assert not datagram.is_malformed
            assert not missing_in(datagram, one)
