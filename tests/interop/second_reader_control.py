"""A second decoder of the control plane, written from docs/reference/wire alone.

See `second_reader`. A message is decoded for a receiver, `"server"` or `"client"`, since the two
drop different things.
"""

import hashlib
import hmac
import ipaddress
import re
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.interop.second_reader import Cursor, Decoder, Fields, Malformed, checked, demand, record

Receiver = Literal["server", "client"]

LARGEST_MESSAGE = 65536
LARGEST_DATA = 4096
LARGEST_URL = 256
MOST_CANDIDATES = 8
LONGEST_NAME = 64
MOST_NAMES = 64
LARGEST_NAMES = 2048
MOST_PARTS = 1024
PUB, SUB = 32, 33
SECRET = bytes(range(32))  # of the examples
KNOWN = {  # keys of a cluster and of a server, of the examples
    bytes.fromhex("2543b92ff1095511476adc8369db6ddc933665a11978dda1404ee1066ca9559d"),
    bytes.fromhex("174553b456dddfc6908ecab1c101fe6ab21e2baa0617795b7d43a63482993fd5"),
}
FIRST_USER_COMMAND = 0x0100

URL = re.compile(r"(?:tcp|tls\+tcp)://(?:\[([^\]]*)\]|[0-9A-Za-z._-]+):([0-9]{1,5})")
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f]")
FOREIGN_URL = re.compile(r"(?!tcp:|tls\+tcp:)[a-z][a-z0-9+.-]*://.+", re.DOTALL)

# The transport.


def read_hello(data: bytes) -> Fields:
    """Decode the eight bytes with which both ends of a TCP connection begin."""
    demand(len(data) == 8, "eight bytes")
    zero, letters, version, protocol, reserved = struct.unpack(">B2sBHH", data)
    demand((zero, letters, version, reserved) == (0, b"SP", 0, 0), "no SP connection")
    demand(protocol in (PUB, SUB), "neither PUB nor SUB")
    return {"protocol": protocol}


def read_connection_from_pub(data: bytes) -> Fields:
    """Decode what a SUB hears on one connection; where it would hang up is `Malformed`."""
    cursor = Cursor(data)
    demand(read_hello(cursor.take(8)) == {"protocol": PUB}, "not a PUB")
    messages = []
    while cursor.left:
        length = int.from_bytes(cursor.take(8), "big")
        demand(length <= LARGEST_MESSAGE, "65536 bytes at most")
        messages.append(cursor.take(length).hex())
    return {"messages": messages}


def read_carried(data: bytes) -> Fields:
    """Decode one message as it is carried over TCP."""
    cursor = Cursor(data)
    message = cursor.take(int.from_bytes(cursor.take(8), "big"))
    cursor.end()
    return {"message": message.hex()}


# Parameters.


def _sized_bytes(cursor: Cursor) -> str:
    demand(cursor.left <= LARGEST_DATA, "4096 bytes of data at most")
    return cursor.rest().hex()


def _key(cursor: Cursor) -> str:
    return cursor.take(32).hex()


def _signature(cursor: Cursor) -> str:
    return cursor.take(64).hex()


def _code(cursor: Cursor) -> str:
    return cursor.take(16).hex()


def _any_bytes(cursor: Cursor) -> str:
    return cursor.rest().hex()


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("no UTF-8") from error
    demand(not CONTROL_CHARACTERS.search(text), "no control characters")
    return text


def _watched(cursor: Cursor) -> int:
    topic = cursor.u32()
    demand(topic > 0, "nobody watches 0")
    return topic


def _name(cursor: Cursor) -> str:
    name = _text(cursor.rest())
    demand(len(name) <= LONGEST_NAME, "64 characters at most")
    return name


def _names(cursor: Cursor) -> list[str]:
    demand(cursor.left <= LARGEST_NAMES, "2048 bytes of names at most")
    names = []
    while cursor.left:
        names.append(_text(cursor.take(cursor.u8())))
    demand(len(names) <= MOST_NAMES, "64 names at most")
    demand(all(names), "a name has a byte at least")
    demand(len(set(names)) == len(names), "each name once")
    return names


def _host(cursor: Cursor) -> str:
    demand(cursor.left in (4, 16), "an address has 4 or 16 bytes")
    return str(ipaddress.ip_address(cursor.rest()))


def _url(cursor: Cursor) -> str:
    try:
        text = cursor.take(cursor.u16()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("no UTF-8") from error
    demand(len(text) <= LARGEST_URL, "256 characters at most")
    if FOREIGN_URL.fullmatch(text):
        return ""
    match = URL.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 65536 or not _is_ipv6(match[1]):
        raise Malformed(f"{text!r} is no URL")
    return text


def _is_ipv6(host: str | None) -> bool:
    try:
        return host is None or ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _part(cursor: Cursor) -> Fields:
    fields = record(index=Cursor.u16, count=Cursor.u16)(cursor)
    demand(fields["index"] < fields["count"] <= MOST_PARTS, "no such part")
    return fields


_server_id = checked(Cursor.u32, lambda number: number > 1 and number % 2 == 0, "even, over 1")
_client_id = checked(Cursor.u32, lambda number: number > 1 and number % 2 == 1, "odd, over 1")
_port = checked(Cursor.u16, bool, "port not 0")
_view = checked(Cursor.u64, lambda number: number <= 2**63, "2^63 at most")


def _state(cursor: Cursor) -> int:
    number = cursor.u8()
    return number if number in (1, 2) else 1  # JOINING


def _reason(cursor: Cursor) -> int:
    number = cursor.u16()
    return number if number in (1, 2, 4, 5, 6, 7, 8, 9) else 0  # OTHER


CANDIDATE = record(port=_port, host=_host)
MEMBER_HEAD = record(server=_server_id, nonce=Cursor.u64, state=_state)
MEMBER_URLS = record(pub=_url, sub=_url)


def _member(cursor: Cursor) -> Fields:
    head = MEMBER_HEAD(cursor)
    urls = MEMBER_URLS(cursor) if cursor.left else {}
    return {**head, **(urls if all(urls.values()) else {})}


def _candidates(cursor: Cursor) -> list[Fields]:
    count = cursor.u8()
    demand(count <= MOST_CANDIDATES, "8 candidates at most")
    return [CANDIDATE(Cursor(cursor.take(cursor.u8()))) for _ in range(count)]


def _nanoseconds(cursor: Cursor) -> int:
    time = cursor.u64()
    demand(time <= 1 << 63, "2^63 ns at most")
    return time


PEER = record(
    client=_client_id,
    nonce=Cursor.u64,
    revision=Cursor.u32,
    candidates=_candidates,
    data=_sized_bytes,
)

PARAMETERS: dict[int, tuple[str, Decoder]] = {
    0x01: ("VERSION", record(version=Cursor.u16)),
    0x02: ("FEATURES", record(features=Cursor.u32)),
    0x03: ("NONCE", record(nonce=Cursor.u64)),
    0x04: ("CANDIDATE", CANDIDATE),
    0x05: ("STATE", record(state=_state)),
    0x06: ("VIEW", record(view=_view)),
    0x07: ("MEMBER", _member),
    0x08: ("ROSTER", record(count=Cursor.u32, mix=Cursor.u64)),
    0x09: ("REASON", record(reason=_reason)),
    0x0A: ("REVISION", record(revision=Cursor.u32)),
    0x0B: ("BLOB", record(data=_sized_bytes)),
    0x0C: ("PEER", PEER),
    0x0D: ("ACKED", record(client=_client_id, nonce=Cursor.u64)),
    0x0E: ("PART", _part),
    0x0F: ("TEXT", record(data=_any_bytes)),
    0x10: ("PEER_ID", record(client=_client_id)),
    0x11: ("GONE", record(client=_client_id, nonce=Cursor.u64, reason=_reason)),
    0x12: ("TARGET", record(server=_server_id)),
    0x13: ("KEY", record(key=_key)),
    0x14: ("PEER_KEY", record(client=_client_id, nonce=Cursor.u64, key=_key)),
    0x15: ("VOUCHER", record(boot=Cursor.u64, count=Cursor.u64, code=_code)),
    0x16: ("TOPICS", record(topics=_names)),
    0x17: ("PEER_TOPICS", record(client=_client_id, nonce=Cursor.u64, topics=_names)),
    0x19: ("NAME", record(name=_name)),
    0x1A: ("PEER_NAME", record(client=_client_id, nonce=Cursor.u64, name=_name)),
    0x1B: ("GROUPS", record(groups=_names)),
    0x1D: ("WATCH", record(topic=_watched, count=Cursor.u32, mix=Cursor.u64)),
    0x1C: ("PEER_GROUPS", record(client=_client_id, nonce=Cursor.u64, groups=_names)),
    0x1E: (
        "TIME",
        record(
            timeline=Cursor.u64,
            generation=Cursor.u32,
            reference=Cursor.u64,
            predecessor=Cursor.u64,
            since=_nanoseconds,
            time=_nanoseconds,
            error=_nanoseconds,
        ),
    ),
    0x1F: ("TIME_REQUEST", record(server=_server_id, origin=Cursor.u64)),
    0x20: ("ORIGIN", record(origin=Cursor.u64)),
    0x21: ("TOKEN", record(token=Cursor.u64)),
    0x18: (
        "SIGNATURE",
        record(
            key=_key,
            cluster=_key,
            certificate=_signature,
            boot=Cursor.u64,
            count=Cursor.u64,
            signature=_signature,
        ),
    ),
}

# How many a message may carry.
MOST = {"CANDIDATE": MOST_CANDIDATES, "MEMBER": 64, "WATCH": 321}


def _split(cursor: Cursor) -> tuple[int, bytes]:
    number = cursor.u16()
    return number, cursor.take(cursor.u16())


def _decode(number: int, data: bytes) -> Fields:
    cursor = Cursor(data)
    fields = PARAMETERS[number][1](cursor)
    cursor.end()
    return {"id": number, **fields}


def _skipped(number: int, data: bytes) -> Fields:
    return {"id": number, "data": data.hex()}


def read_parameter(data: bytes) -> Fields:
    """Decode exactly one parameter, taken by whatever carries it."""
    cursor = Cursor(data)
    number, inside = _split(cursor)
    cursor.end()
    return (_decode if number in PARAMETERS else _skipped)(number, inside)


# Messages.

# By command and who says it, as in the table of the page: `?` may be absent, `*` may repeat.
RECORDS = "PEER* PEER_KEY* PEER_TOPICS* PEER_NAME* PEER_GROUPS*"
COMMANDS: dict[tuple[int, str], str] = {
    (0x01, "client"): "NONCE? REVISION? TIME_REQUEST?",
    (0x01, "server"): "VERSION? FEATURES? NONCE? STATE? VIEW? MEMBER* ROSTER? TIME? TIME_REQUEST?",
    (0x02, "client"): "NONCE? VERSION? FEATURES? CANDIDATE* KEY? NAME?",
    (0x03, "server"): "NONCE?",
    (0x03, "server, to several"): "ACKED*",
    (0x04, "server"): "NONCE? REASON?",
    (0x05, "client"): "NONCE?",
    (0x05, "server"): "NONCE?",
    (0x06, "client"): "NONCE? REVISION BLOB TOPICS? GROUPS?",
    (0x10, "client"): "NONCE? PEER_ID? TARGET? WATCH*",
    (0x11, "server"): f"PART? {RECORDS}",
    (0x12, "server"): "GONE*",
    (0x13, "client"): "NONCE? PEER_ID TOKEN",
    (0x13, "server"): "PEER_ID TOKEN CANDIDATE*",
    (0x18, "client"): "NONCE?",
    (0x19, "server"): "PART TEXT",
    (0x1A, "server"): "ORIGIN TIME",
    (0x20, "server"): RECORDS,
    (0x21, "server"): "GONE*",
    (0x22, "server"): "",
    (0x23, "server"): f"PART {RECORDS}",
}

BETWEEN_SERVERS = (0x20, 0x21, 0x22, 0x23)
USER_COMMANDS = {"client": "NONCE?", "server": ""}


def _speaker(simulation: int, sender: int, receiver: Receiver) -> str:
    demand(sender > 1, "0 and 1 belong to nobody")
    if sender % 2 == 0:
        return "server"
    demand(simulation == sender, "a client speaks about itself only")
    demand(receiver == "server", "clients hear only servers")
    return "client"


def _takes(command: int, speaker: str, simulation: int, receiver: Receiver) -> str:
    if command >= FIRST_USER_COMMAND:
        return USER_COMMANDS[speaker]
    demand(command not in BETWEEN_SERVERS or receiver == "server", "servers say it to servers")
    is_to_several = simulation == 1 or simulation % 2 == 0
    to_several = COMMANDS.get((command, f"{speaker}, to several")) if is_to_several else None
    takes = COMMANDS.get((command, speaker)) if to_several is None else to_several
    if takes is None:
        raise Malformed(f"a {speaker} does not say {command:#x}")
    return takes


def read_message(data: bytes, receiver: Receiver) -> Fields:
    """Decode a whole message that this receiver hears."""
    demand(len(data) <= LARGEST_MESSAGE, "65536 bytes at most")
    cursor = Cursor(data)
    head = record(simulation=Cursor.u32, sender=Cursor.u32, command=Cursor.u16)(cursor)
    speaker = _speaker(head["simulation"], head["sender"], receiver)
    words = _takes(head["command"], speaker, head["simulation"], receiver).split()
    taken = {word.rstrip("?*") for word in words}
    seen: Counter[str] = Counter()
    parameters = []
    while cursor.left:
        number, inside = _split(cursor)
        name = PARAMETERS[number][0] if number in PARAMETERS else ""
        seen[name] += 1
        parameters.append((_decode if name in taken else _skipped)(number, inside))
    for name in taken:
        demand(name not in words or seen[name] > 0, f"{name} is missing")
        demand(name not in MOST or seen[name] <= MOST[name], f"too many {name}")
    return {**head, "parameters": parameters}


def _holder(parameter: Fields) -> tuple[int, int]:
    return parameter["client"], parameter["nonce"]


def what_counts(data: bytes, receiver: Receiver) -> Fields:
    """Decode a whole message, without the parameters that its command skips."""
    fields = read_message(data, receiver)
    speaker = "client" if fields["sender"] % 2 else "server"
    words = _takes(fields["command"], speaker, fields["simulation"], receiver).split()
    several = {word.rstrip("*") for word in words if word.endswith("*")}
    once = {word.rstrip("?") for word in words} - several
    told = {_holder(p) for p in fields["parameters"] if p["id"] == 0x0C}
    lacking = {name.rstrip("*"): set(told) for name in RECORDS.split()[1:]}
    counting = []
    for parameter in fields["parameters"]:
        name = PARAMETERS[parameter["id"]][0] if parameter["id"] in PARAMETERS else ""
        is_own = min(parameter["id"], fields["command"]) >= FIRST_USER_COMMAND
        if name in lacking:
            if _holder(parameter) not in lacking[name]:
                continue
            lacking[name].discard(_holder(parameter))
        if name in once or name in several or is_own:
            counting.append(parameter)
        once.discard(name)
    return {**fields, "parameters": counting}


# A secret.


def read_vouched(data: bytes) -> Fields:
    """Decode a message of whoever has the secret of the examples."""
    demand(len(data) >= 10 + 36, "a header and a voucher at least")
    message, mark = data[:-36], data[-36:]
    number, size, boot, count = struct.unpack_from("<HHQQ", mark)
    demand((number, size) == (0x15, 32), "the last parameter is a voucher")
    key = hmac.new(SECRET, b"SphTP control messages", hashlib.sha256).digest()
    code = hmac.new(key, data[:-16], hashlib.sha256).digest()[:16]
    demand(code == mark[-16:], "another code")
    return {"secret": SECRET.hex(), "boot": boot, "count": count, "message": message.hex()}


# Signatures.


def read_signed(data: bytes) -> Fields:
    """Decode a message of a server, for whoever knows the keys of the examples."""
    demand(len(data) >= 10 + 212, "a header and a signature at least")
    message, mark, signature = data[:-212], data[-212:-64], data[-64:]
    number, size, key, cluster, certificate, boot, count = struct.unpack("<HH32s32s64sQQ", mark)
    demand((number, size) == (0x18, 208), "the last parameter is a signature")
    if key not in KNOWN:
        demand(cluster in KNOWN, "nobody known vouches for it")
        demand(
            _has_signed(cluster, certificate, b"SphTP key of a server\0" + key), "no certificate"
        )
    heard = {to: b"SphTP server to " + to.encode() + b"\0" for to in ("clients", "servers")}
    by = [to for to, start in heard.items() if _has_signed(key, signature, start + data[:-64])]
    demand(len(by) == 1, "another signature")
    keys = {"key": key.hex(), "cluster": cluster.hex(), "certificate": certificate.hex()}
    return {"to": by[0], **keys, "boot": boot, "count": count, "message": message.hex()}


def _has_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        return False
    return True


# The roster.


def read_roster(data: bytes) -> Fields:
    """Decode the data of a `ROSTER`."""
    fields = _decode(0x08, data)
    return {"count": fields["count"], "mix": fields["mix"]}


def peer_data(peer: Fields) -> bytes:
    """Write the data of a `PEER`, which is what a fingerprint is taken of."""
    data = struct.pack("<IQI", peer["client"], peer["nonce"], peer["revision"])
    data += bytes([len(peer["candidates"])])
    for candidate in peer["candidates"]:
        address = ipaddress.ip_address(candidate["host"]).packed
        data += bytes([2 + len(address)]) + struct.pack("<H", candidate["port"]) + address
    return data + bytes.fromhex(peer["data"])


def roster_of(peers: Iterable[bytes]) -> Fields:
    """Digest a list of peers, each given as the data of its `PEER`."""
    count, mix = 0, 0
    for data in peers:
        count += 1
        mix ^= int.from_bytes(hashlib.sha256(data).digest()[:8], "little")
    return {"count": count, "mix": mix}


def read_announcement(data: bytes) -> Fields:
    """Decode the TXT record of a server."""
    cursor, found = Cursor(data), {}
    while cursor.left:
        name, _, value = cursor.take(cursor.u8()).decode("ascii").partition("=")
        found[name] = value
    demand({"version", "address", "cluster"} <= found.keys(), "a key is missing")
    demand(found["version"] == "1", "another version")
    base, _, port = found["address"].partition(",")[0].rpartition(":")
    demand(base.startswith(("tcp://", "tls+tcp://")), "no address of a bus")
    demand(port.isdecimal() and int(port) > 0, "no port")
    demand(all(digit in "0123456789abcdef" for digit in found["cluster"]), "not hexadecimal")
    return dict(found)
