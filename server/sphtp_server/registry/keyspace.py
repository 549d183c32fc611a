"""Keys and values of the registry in etcd, and the encoding of requests and replies.

Below ``/<name>/`` there are three kinds of keys, with numbers in hexadecimal digits:

- ``members/<address>``: a server that registers ids. A restarted server replaces its key at once,
  before the lease of the old one ends.
- ``ids/<id>/<nonce>/<nonce of a server>``: this server has registered this holder of the id.
- ``beats/<nonce>``: a number that a server increases, to measure how current its watch is.

An id belongs to one nonce as long as there is any key below ``ids/<id>/<nonce>/``. A claim is one
transaction: if there is no key of another nonce below ``ids/<id>/``, before or after those of the
own nonce, put the own key. So a claim creates the id if it is absent, joins it if the same holder
has it, and may be repeated. etcd compares a whole range of keys at once, so no key has to be read
first.

etcd's JSON has bytes in base64, and integers of 64 bits as text. It omits empty values.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.records import GoneHolder, Holder, Member, PeerRecord, ServerAddress
from sphtp.core.control.server_messages import Registered, Released
from sphtp.core.control.vocabulary import Reason, is_client_id, is_server_id
from sphtp.core.printable import printable
from sphtp.errors import RemoteError, SettingsError, WireError, untrusted

JsonObject = dict[str, Any]
"""A JSON object."""

MEMBERS: Final = "members/"
IDS: Final = "ids/"
BEATS: Final = "beats/"

SERVER_VALUE: Final = b"server"
"""The value of the key with which a server reserves its own id."""

MOST_OPERATIONS: Final = 32
"""The most operations in one transaction. By default, etcd allows 128."""

MOST_BYTES: Final = 1 << 19
"""The size of values, in bytes, at which a transaction is full. etcd allows 1.5 MiB."""

PAGE: Final = 250
"""The most keys in one page of a list."""


_NO_MEMBER: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,  # a number has no parts as an address has
    RemoteError,
    SettingsError,
)
"""The errors of a value that is not a member."""


class IdKey(NamedTuple):
    """The key of a registration."""

    id: int
    nonce: int
    server: int
    """The nonce of the server that has registered the holder."""

    @property
    def holder(self) -> Holder:
        """The holder of the id."""
        return Holder(self.id, self.nonce)


class StoredRegistration(NamedTuple):
    """The value of a live registration: the record, and the id of the server."""

    record: PeerRecord
    server: int

    @property
    def holder(self) -> Holder:
        """The holder of the id."""
        return Holder(self.record.id, self.record.nonce)


class StoredKey(NamedTuple):
    """A key with its value, from a reply or an event of etcd."""

    name: str
    value: bytes
    revision: int
    """The revision of its last change."""
    lease: str
    """The lease at whose end etcd deletes the key; 0 if there is none."""


class KeyEvent(NamedTuple):
    """A change of a key."""

    name: str
    revision: int
    stored: StoredKey | None
    """The key after the change; None if it was deleted."""


@dataclass(frozen=True, slots=True)
class PutKey:
    """The operation to put a key under a lease.

    With ``guard``, it succeeds only if no other holder than this one has its id.
    """

    name: str
    value: bytes
    lease: str
    guard: Holder | None = None


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """The operation to delete a key unless it has changed since ``revision``."""

    name: str
    revision: int


KeyOperation = PutKey | DeleteKey


class Keyspace:
    """The keys of one cluster, by its name."""

    def __init__(self, name: str) -> None:
        self.prefix = f"/{name}/"
        self._ids = re.compile(
            f"{re.escape(self.prefix + IDS)}([0-9a-f]{{8}})/([0-9a-f]{{16}})/([0-9a-f]{{16}})"
        )
        self._counters = ControlCounters()
        self._reader = MessageReader(self._counters, for_client=False)

    def member(self, member: Member) -> str:
        """Return the key of a member."""
        return f"{self.prefix}{MEMBERS}{member.address}"

    def beat(self, nonce: int) -> str:
        """Return the key of the beats of the server with a nonce."""
        return f"{self.prefix}{BEATS}{nonce:016x}"

    def id(self, holder: Holder, server: int) -> str:
        """Return the key of a holder's registration by the server with the nonce ``server``."""
        return f"{self._id_prefix(holder.id)}{holder.nonce:016x}/{server:016x}"

    def _id_prefix(self, number: int) -> str:
        return f"{self.prefix}{IDS}{number:08x}/"

    def is_member(self, key: str) -> bool:
        """Return True for the key of a member."""
        return key.startswith(self.prefix + MEMBERS)

    def is_id(self, key: str) -> bool:
        """Return True for the key of a registration."""
        return key.startswith(self.prefix + IDS)

    @untrusted
    def parse_id_untrusted(self, key: str) -> IdKey:
        """Return the parts of the key of a registration. Raises ``RemoteError``."""
        # Another spelling of the same numbers would be a second key for one registration.
        match = self._ids.fullmatch(key)
        if match is None:
            raise WireError(f"the key {key!r} is not the key of a registration")
        number, nonce, server = (int(part, 16) for part in match.groups())
        return IdKey(number, nonce, server)

    @untrusted
    def parse_registration_untrusted(self, value: bytes) -> StoredRegistration | Reason:
        """Return a live registration, or the reason why it has ended. Raises ``RemoteError``."""
        match self._reader.take(value):
            case Registered(sender, (record,)) if is_client_id(record.id):
                return StoredRegistration(record, sender)
            case Released(_, (gone,)):
                return gone.reason
        raise WireError("the value is not a registration")

    @untrusted
    def parse_member_untrusted(self, value: bytes) -> Member:
        """Return a member. Raises ``RemoteError``."""
        try:
            document = parse_document_untrusted(value)
            number, nonce = int(document["id"], 16), int(document["nonce"], 16)
            address = ServerAddress.parse(document["address"])
        except _NO_MEMBER as error:
            raise WireError("the value is not a member") from error
        if not is_server_id(number) or not 0 < nonce < 1 << 64 or not address.is_dialable:
            raise WireError("the value is not a member")
        return Member(number, nonce, address)

    def range(self, start: str, revision: int) -> JsonObject:
        """Return the body of a list request for keys from ``start``; revision 0 is the latest."""
        body: JsonObject = {"key": _text(start), "range_end": self._end, "limit": str(PAGE)}
        return {**body, "revision": str(revision)} if revision else body

    def watch(self, revision: int) -> JsonObject:
        """Return the body of a watch request for all changes from ``revision`` on."""
        request = {"key": _text(self.prefix), "range_end": self._end}
        return {"create_request": {**request, "start_revision": str(revision)}}

    @property
    def _end(self) -> str:
        return _text(f"{self.prefix[:-1]}{chr(ord('/') + 1)}")

    def write(self, operations: list[KeyOperation]) -> JsonObject:
        """Return the body of a transaction whose operations succeed or fail independently.

        etcd evaluates the conditions of all operations before it performs the first. So one
        transaction must not contain two claims of one id: both would succeed.
        """
        return {"success": [{"request_txn": self._transaction(one)} for one in operations]}

    def _transaction(self, operation: KeyOperation) -> JsonObject:
        if isinstance(operation, DeleteKey):
            key = _text(operation.name)
            unchanged = {"target": "MOD", "result": "EQUAL", "key": key}
            unchanged["mod_revision"] = str(operation.revision)
            return {"compare": [unchanged], "success": [{"request_delete_range": {"key": key}}]}
        put = {"key": _text(operation.name), "value": _base64(operation.value)}
        success = [{"request_put": {**put, "lease": operation.lease}}]
        if operation.guard is None:
            return {"success": success}
        first = self._id_prefix(operation.guard.id)
        own = f"{first}{operation.guard.nonce:016x}"
        return {
            "compare": [
                _absent(first, own + "/"),
                _absent(own + chr(ord("/") + 1), first[:-1] + chr(ord("/") + 1)),
            ],
            "success": success,
        }


def encode_member(member: Member) -> bytes:
    """Return the value of a member."""
    return json.dumps(
        {
            "id": f"{member.id:08x}",
            "nonce": f"{member.nonce:016x}",
            "address": str(member.address),
        }
    ).encode()


def encode_registration(record: PeerRecord, server: int) -> bytes:
    """Return the value of a live registration."""
    return Registered(server, (record,)).encode()


def encode_release(holder: Holder, reason: Reason, server: int) -> bytes:
    """Return the value of a registration that has ended, which keeps its id reserved."""
    return Released(server, (GoneHolder(holder.id, holder.nonce, reason),)).encode()


@untrusted
def parse_document_untrusted(data: bytes) -> JsonObject:
    """Return the JSON object of an answer. Raises ``RemoteError``."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError("the reply of etcd is not JSON") from error
    if not isinstance(document, dict):
        raise WireError("the reply of etcd is not a JSON object")
    return document


@untrusted
def parse_reason_untrusted(data: bytes) -> str:
    """Return the reason in an answer that is an error, in at most a line."""
    text = data.decode(errors="replace").strip()
    try:
        document = json.loads(text)
        inner = document.get("error", document)
        message = inner if isinstance(inner, str) else inner.get("message", inner)
        text = str(message)
    except (ValueError, AttributeError, RecursionError):
        pass
    return printable(text[:200]) or "an error without a reason"


@untrusted
def parse_revision_untrusted(document: JsonObject) -> int:
    """Return the revision in the header of a reply. Raises ``RemoteError``."""
    return _number(_object(document, "header"), "revision")


@untrusted
def parse_lease_untrusted(document: JsonObject) -> tuple[str, int]:
    """Return a lease and its time to live in seconds, 0 if it has ended. Raises ``RemoteError``."""
    # The reply to a renewal is a stream of one document.
    answer = _object(document, "result") if "result" in document else document
    return str(_number(answer, "ID")), _number(answer, "TTL")


@untrusted
def parse_outcomes_untrusted(document: JsonObject, count: int) -> list[bool]:
    """Return True or False for each operation of a transaction: done or refused.

    Raises ``RemoteError`` for a reply with another number of operations.
    """
    answers = [_object(one, "response_txn") for one in _objects(document, "responses")]
    if len(answers) != count:
        raise WireError(f"{len(answers)} answers to {count} operations")
    return [answer.get("succeeded") is True for answer in answers]


@untrusted
def parse_entries_untrusted(document: JsonObject) -> tuple[list[StoredKey], bool]:
    """Return the keys of a list page, and True if more pages follow. Raises ``RemoteError``."""
    entries = [_stored(kv) for kv in _objects(document, "kvs")]
    return entries, document.get("more") is True


class WatchState(NamedTuple):
    """The state of a watch: canceled by etcd, because of a compaction or for another reason."""

    is_canceled: bool
    is_compacted: bool
    why: str


@untrusted
def parse_watch_untrusted(document: JsonObject) -> WatchState:
    """Return the state of a watch in one of its documents. Raises ``RemoteError``."""
    result = _object(document, "result")
    if not result:
        raise WireError("a document of a watch without a result")
    is_compacted = _number(result, "compact_revision") > 0
    why = printable(str(result.get("cancel_reason", "no reason given"))[:200])
    return WatchState(result.get("canceled") is True, is_compacted, why)


@untrusted
def parse_events_untrusted(document: JsonObject) -> list[KeyEvent]:
    """Return the changes in a document of a watch. Raises ``RemoteError``."""
    events = []
    for event in _objects(_object(document, "result"), "events"):
        kv = _object(event, "kv")
        stored = None if event.get("type") == "DELETE" else _stored(kv)
        events.append(KeyEvent(_key(kv), _number(kv, "mod_revision"), stored))
    return events


def _stored(kv: JsonObject) -> StoredKey:
    lease = str(_number(kv, "lease"))
    return StoredKey(_key(kv), _bytes(kv, "value"), _number(kv, "mod_revision"), lease)


def _absent(first: str, end: str) -> JsonObject:
    return {
        "target": "CREATE",
        "result": "EQUAL",
        "key": _text(first),
        "range_end": _text(end),
        "create_revision": "0",
    }


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _text(key: str) -> str:
    return _base64(key.encode())


def _key(kv: Mapping[str, Any]) -> str:
    try:
        return _bytes(kv, "key").decode()
    except UnicodeDecodeError as error:
        raise WireError("a key is no text") from error


def _bytes(document: Mapping[str, Any], name: str) -> bytes:
    try:
        return b64decode(document.get(name, ""), validate=True)
    except (Base64Error, TypeError, ValueError) as error:
        raise WireError(f"{name} is not base64") from error


def _number(document: Mapping[str, Any], name: str) -> int:
    try:
        return int(document.get(name, 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"{name} is no number") from error


def _object(document: Mapping[str, Any], name: str) -> JsonObject:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise WireError(f"{name} is no object")
    return found


def _objects(document: Mapping[str, Any], name: str) -> list[JsonObject]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise WireError(f"{name} is no list of objects")
    return found
