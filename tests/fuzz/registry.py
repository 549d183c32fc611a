"""A server's registry on etcd: keys and values that anybody may have put there, and any answer.

Whatever etcd answers, the registry raises nothing, never wakes without a cause, and holds no more
than its limits and the keys that it was given.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from sphtp import ServerAddress
from sphtp.core.control.records import Candidate, Holder, Member, PeerRecord
from sphtp.core.control.vocabulary import Reason
from sphtp.errors import RemoteError
from sphtp_server.registry.etcd import EtcdRegistry, StoreRequest, StoreTask
from sphtp_server.registry.keyspace import (
    IDS,
    MEMBERS,
    Keyspace,
    StoredRegistration,
    encode_member,
    encode_registration,
    encode_release,
    parse_document_untrusted,
    parse_reason_untrusted,
)
from tests.apps.server.registry.simulated_etcd import EtcdError, SimulatedEtcd, encode
from tests.fuzz.choices import Choices, Script
from tests.fuzz.mutations import mutate

EXPIRY: Final = 10.0
WAITS: Final = (0.0, 0.01, 0.3, 2.5, 11.0, 100.0)
MOST_SAID: Final = 1000
LONGEST_REASON: Final = 1210

KEYSPACE: Final = Keyspace("sphtp")
OWN: Final = Member(2, 5, ServerAddress.parse("tcp://127.0.0.1:8764"))
OTHER: Final = Member(4, 6, ServerAddress.parse("tcp://127.0.0.1:8766"))
CLIENTS: Final = (PeerRecord(7, 9, (Candidate("127.0.0.1", 5000),), b"data"), PeerRecord(9, 1))

ODD: Final[Sequence[Any]] = (
    *(None, True, 0, -1, 2**63, 2**64, 1.5, float("inf"), float("nan"), 10**400),
    *("", "x", "0", "-1", "1" * 5000, "\ud800", "AA==", "\x00", [], {}, [{}], {"": {}}, "DELETE"),
)
"""Values in the places of others."""


@cache
def names() -> Sequence[str]:
    """Keys: of members, of registrations here and elsewhere, and of none."""
    holders = [Holder(one.id, one.nonce) for one in CLIENTS]
    ids = [KEYSPACE.id(one, server.nonce) for one in holders for server in (OWN, OTHER)]
    return (
        *map(KEYSPACE.member, (OWN, OTHER)),
        KEYSPACE.beat(OWN.nonce),
        *ids,
        KEYSPACE.id(Holder(OWN.id, OWN.nonce), OWN.nonce),
        f"{KEYSPACE.prefix}{MEMBERS}",
        f"{KEYSPACE.prefix}{IDS}7/9/5",
        f"{KEYSPACE.prefix}{IDS}",
        "/sphtp/?",
    )


@cache
def values() -> Sequence[bytes]:
    """Values: of members, and of registrations that are live or have ended."""
    holder = Holder(CLIENTS[0].id, CLIENTS[0].nonce)
    return (
        *map(encode_member, (OWN, OTHER)),
        *(encode_registration(one, OTHER.id) for one in CLIENTS),
        *(encode_release(holder, reason, OTHER.id) for reason in (Reason.LEFT, Reason.EXPIRED)),
        b"server",
        b"1",
    )


def stored(data: bytes) -> None:
    """A key, a value or a document: there is one way to write a key; values mean the same again."""
    kind, rest = data[:1], data[1:]
    if kind == b"\x00":
        name = rest.decode(errors="replace")
        key = KEYSPACE.parse_id_untrusted(name)
        assert KEYSPACE.id(key.holder, key.server) == name
    elif kind == b"\x01":
        member = KEYSPACE.parse_member_untrusted(rest)
        assert KEYSPACE.parse_member_untrusted(encode_member(member)) == member
        assert KEYSPACE.is_member(KEYSPACE.member(member))
    elif kind == b"\x02":
        value = KEYSPACE.parse_registration_untrusted(rest)
        if isinstance(value, StoredRegistration):
            again = encode_registration(value.record, value.server)
            assert KEYSPACE.parse_registration_untrusted(again) == value
    else:
        assert len(parse_reason_untrusted(rest)) <= LONGEST_REASON
        json.dumps(parse_document_untrusted(rest))


class RegistryUnderFuzz:
    """The registry of a server; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._etcd = SimulatedEtcd()
        self._asked: dict[StoreTask, StoreRequest] = {}
        self._following = 0
        self.now = 100.0
        self.registry = EtcdRegistry(EXPIRY, 4)
        self.registry.handle_start(self.now, OWN)
        self._settle()

    def step(self) -> None:
        """Let one thing happen, and take what there is."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def wait(self) -> None:
        """Time passes, and leases may end."""
        self.now += self._choices.pick(WAITS)
        self._etcd.expire(self.now)

    def serve(self) -> None:
        """Etcd answers all that it is asked."""
        for task in tuple(self._asked):
            self._answer(task, lambda document: document)

    def serve_changed(self) -> None:
        """A value in an answer is another one."""
        self._answer(self._choices.pick(tuple(StoreTask)), self._spoiled)

    def serve_bytes(self) -> None:
        """An answer has other bytes."""

        def changed(document: Any) -> Any:
            data = mutate(self._choices, json.dumps(document).encode())
            assert len(parse_reason_untrusted(data)) <= LONGEST_REASON
            try:
                return parse_document_untrusted(data)
            except RemoteError:
                return None

        self._answer(self._choices.pick(tuple(StoreTask)), changed)

    def fail(self) -> None:
        """A request fails."""
        request = self._asked.pop(self._choices.pick(tuple(StoreTask)), None)
        if request is not None:
            self.registry.handle_failure(self.now, request, "no answer")

    def put(self) -> None:
        """Somebody puts a key into etcd."""
        choices = self._choices
        name, value = choices.pick(names()).encode(), choices.pick(values())
        name = name if choices.below(4) else mutate(choices, name)
        value = value if choices.below(2) else mutate(choices, value, values())
        put = {"key": encode(name), "value": encode(value)}
        self._etcd.handle(
            self.now,
            "/v3/kv/txn",
            {"success": [{"request_txn": {"success": [{"request_put": put}]}}]},
        )

    def compact(self) -> None:
        """Etcd forgets its history, or all that it had."""
        if self._choices.below(2):
            self._etcd.compact()
        else:
            self._etcd = SimulatedEtcd()

    def command(self) -> None:
        """The server has a client, or has one no more."""
        choices, registry = self._choices, self.registry
        record = choices.pick(CLIENTS)
        match choices.below(5):
            case 0 | 1:
                registry.claim(self.now, record)
            case 2:
                registry.withdraw(self.now, Holder(record.id, record.nonce))
            case 3:
                registry.release(self.now, record.id, choices.pick(tuple(Reason)))
            case _:
                registry.handle_start(self.now, OWN)

    # How it happens

    def _answer(self, task: StoreTask, change: Callable[[Any], Any]) -> None:
        request = self._asked.get(task)
        if request is None:
            return
        try:
            document = change(self._document(request))
        except EtcdError:
            document = None
        if document is None:
            del self._asked[task]
            self.registry.handle_failure(self.now, request, "no answer")
        elif not self.registry.handle_answer(self.now, request, document):
            self._asked.pop(task)

    def _document(self, request: StoreRequest) -> Any:
        if request.task is not StoreTask.WATCH:
            return self._etcd.handle(self.now, request.path, request.body)
        events, self._following = self._etcd.changes(self._following)
        return {"result": {"events": events, "header": {"revision": str(self._etcd.revision)}}}

    def _spoiled(self, document: Any) -> Any:
        """Return a document with another value in one place."""
        choices = self._choices
        if isinstance(document, dict) and document and choices.below(8):
            name = choices.pick(tuple(document))
            return {**document, name: self._spoiled(document[name])}
        if isinstance(document, list) and document and choices.below(8):
            at = choices.below(len(document))
            return [*document[:at], self._spoiled(document[at]), *document[at + 1 :]]
        if isinstance(document, dict):
            known = ("header", "result", "canceled", "compact_revision", "more", "TTL", "ID")
            return {**document, choices.pick(known): choices.pick(ODD)}
        return choices.pick(
            (*ODD, *map(encode, values()), *(encode(it.encode()) for it in names()))
        )

    def _settle(self) -> None:
        registry = self.registry
        registry.handle_time(self.now)
        for _ in range(MOST_SAID):
            request = registry.poll_request(self.now)
            if request is None:
                break
            json.dumps(request.body, allow_nan=False)
            self._asked[request.task] = request
            if request.task is StoreTask.WATCH:
                self._following = int(request.body["create_request"]["start_revision"])
        else:
            raise AssertionError("it asks without end")
        while registry.poll_change() is not None:
            pass
        json.dumps(registry.status(), allow_nan=False)
        due = registry.next_due()
        assert due is None or due > self.now, f"busy at {self.now}"


HAPPENINGS: Final[Sequence[Callable[[RegistryUnderFuzz], None]]] = (
    RegistryUnderFuzz.wait,
    # Often, so that the registry gets somewhere.
    *([RegistryUnderFuzz.serve] * 5),
    RegistryUnderFuzz.serve_changed,
    RegistryUnderFuzz.serve_bytes,
    RegistryUnderFuzz.fail,
    RegistryUnderFuzz.put,
    RegistryUnderFuzz.compact,
    RegistryUnderFuzz.command,
)


def registry(data: bytes) -> EtcdRegistry:
    """Play a script to the registry of a server."""
    script = Script(data)
    it = RegistryUnderFuzz(script)
    while script:
        it.step()
    return it.registry


# Where mutation starts


def registry_starts() -> Iterable[bytes]:
    """One of each kind that ``stored`` reads."""
    yield from (b"\x00" + name.encode() for name in names())
    yield from (bytes([1 + number // 2]) + value for number, value in enumerate(values()[:6]))
    yield b'\x03{"header": {"revision": "7"}, "kvs": [{"key": "AA=="}], "more": true}'
    yield b'\x03{"error": {"message": "etcdserver: no leader", "code": 14}}'
    yield b'\x03{"error": "no leader"}'
