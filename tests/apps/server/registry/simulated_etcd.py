"""An etcd in virtual time: revisions, leases, transactions, compaction and watches.

It takes the JSON of etcd's gateway and returns the same, as etcd 3.4.23 was seen to do it: what is
empty or zero is left out, numbers of 64 bits are texts, and a transaction compares for all nested
ones before it does the first.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class EtcdError(Exception):
    """An answer that is an error."""


@dataclass
class Key:
    value: bytes
    created: int
    revision: int
    lease: int


@dataclass
class Leased:
    seconds: int
    ends: float


class SimulatedEtcd:
    """The store. ``now`` comes with each call; ``has_leader`` is the only state of the cluster."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.keys: dict[bytes, Key] = {}
        self.leases: dict[int, Leased] = {}
        self.history: list[tuple[int, list[Json]]] = []
        self.has_leader = True
        self.most_operations = 64
        self._next_lease = 1000

    def handle(self, now: float, path: str, body: Json) -> Json:
        """Do a request. Raises ``EtcdError``."""
        if not self.has_leader:
            raise EtcdError("etcdserver: no leader")
        self.expire(now)
        match path:
            case "/v3/lease/grant":
                return self._grant(now, body)
            case "/v3/lease/keepalive":
                return {"result": self._renew(now, int(body["ID"]))}
            case "/v3/lease/revoke":
                self._revoke([int(body["ID"])])
                return self._answer()
            case "/v3/kv/range":
                return self._range(body)
            case "/v3/kv/txn":
                return self._transaction(body)
        raise EtcdError(f"no path {path}")

    def expire(self, now: float) -> None:
        """End the leases that are due; without a leader none is."""
        if self.has_leader:
            due = [number for number, lease in self.leases.items() if lease.ends <= now]
            self._revoke(due)

    def elect(self, now: float) -> None:
        """Get a leader again, which gives all leases their whole time."""
        self.has_leader = True
        for lease in self.leases.values():
            lease.ends = now + lease.seconds

    def compact(self) -> None:
        """Forget all changes so far."""
        self.compacted = self.revision
        self.history.clear()

    def changes(self, start: int) -> tuple[list[Json], int]:
        """Return the changes from a revision on, and the one to go on with.

        Raises ``EtcdError`` if they are compacted.
        """
        if start <= self.compacted:
            raise EtcdError("compacted")
        if not self.history or start > self.history[-1][0]:
            return [], start
        first = max(0, len(self.history) - (self.history[-1][0] - start + 1))
        while self.history[first][0] < start:
            first += 1
        events = [event for _, events in self.history[first:] for event in events]
        return events, self.history[-1][0] + 1

    def end_lease(self, name: str) -> None:
        """End the lease of a key, if the key is there still."""
        if name.encode() in self.keys:
            self._revoke([self.keys[name.encode()].lease])

    def names(self, prefix: str) -> list[str]:
        return sorted(name.decode() for name in self.keys if name.startswith(prefix.encode()))

    def _answer(self, **more: Any) -> Json:
        return {"header": {"revision": str(self.revision)}, **more}

    def _grant(self, now: float, body: Json) -> Json:
        self._next_lease += 1
        seconds = max(2, int(body["TTL"]))
        self.leases[self._next_lease] = Leased(seconds, now + seconds)
        return self._answer(ID=str(self._next_lease), TTL=str(seconds))

    def _renew(self, now: float, number: int) -> Json:
        lease = self.leases.get(number)
        if lease is None:
            return self._answer(ID=str(number))
        lease.ends = now + lease.seconds
        return self._answer(ID=str(number), TTL=str(lease.seconds))

    def _revoke(self, numbers: list[int]) -> None:
        for number in numbers:
            self.leases.pop(number, None)
        ended = [name for name, key in self.keys.items() if key.lease in numbers]
        if ended:
            self.revision += 1
        self._record([self._delete(name) for name in ended])

    def _range(self, body: Json) -> Json:
        start, end = _decode(body["key"]), _decode(body["range_end"])
        if revision := int(body.get("revision", 0)):
            if revision < self.compacted:
                raise EtcdError("etcdserver: mvcc: required revision has been compacted")
            if revision != self.revision:
                return self._range_before(body, start, end, revision)
        found = sorted(name for name in self.keys if start <= name < end)
        return self._page(body, {name: self._kv(name) for name in found})

    def _range_before(self, body: Json, start: bytes, end: bytes, revision: int) -> Json:
        past: dict[bytes, Json] = {name: self._kv(name) for name in self.keys}
        for _, events in reversed([each for each in self.history if each[0] > revision]):
            for event in reversed(events):
                name = _decode(event["kv"]["key"])
                past.pop(name, None)
                if event["before"] is not None:
                    past[name] = event["before"]
        return self._page(body, {name: past[name] for name in sorted(past) if start <= name < end})

    def _page(self, body: Json, found: dict[bytes, Json]) -> Json:
        limit = int(body.get("limit", 0)) or len(found)
        page = list(found.values())[:limit]
        more = {"more": True} if len(found) > len(page) else {}
        return self._answer(**({"kvs": page} if page else {}), **more)

    def _transaction(self, body: Json) -> Json:
        nested = [one["request_txn"] for one in body["success"]]
        if len(nested) > self.most_operations:
            raise EtcdError("etcdserver: too many operations in txn request")
        outcomes = [all(map(self._holds, one.get("compare", ()))) for one in nested]
        doing = [
            operation
            for one, is_true in zip(nested, outcomes, strict=True)
            if is_true
            for operation in one["success"]
        ]
        for operation in doing:
            lease = int(operation.get("request_put", {}).get("lease", 0))
            if lease and lease not in self.leases:
                raise EtcdError("etcdserver: requested lease not found")
        names = [next(iter(operation.values()))["key"] for operation in doing]
        if len(set(names)) < len(names):
            raise EtcdError("etcdserver: duplicate key given in txn request")
        self.revision += bool(doing)
        self._record([self._do(operation) for operation in doing])
        return self._answer(
            succeeded=True,
            responses=[
                {"response_txn": {"succeeded": True} if is_true else {}} for is_true in outcomes
            ],
        )

    def _holds(self, compare: Json) -> bool:
        key = _decode(compare["key"])
        if compare["target"] == "MOD":
            found = self.keys.get(key)
            return (found.revision if found else 0) == int(compare["mod_revision"])
        assert compare["target"] == "CREATE"
        assert compare["create_revision"] == "0"
        end = _decode(compare["range_end"])
        return not any(key <= name < end for name in self.keys)

    def _do(self, operation: Json) -> Json:
        if "request_delete_range" in operation:
            return self._delete(_decode(operation["request_delete_range"]["key"]))
        put = operation["request_put"]
        name, lease = _decode(put["key"]), int(put.get("lease", 0))
        before, old = self.keys.get(name), self._kv(name) if name in self.keys else None
        created = before.created if before else self.revision
        self.keys[name] = Key(_decode(put["value"]), created, self.revision, lease)
        return {"kv": self._kv(name), "before": old}

    def _delete(self, name: bytes) -> Json:
        old = self._kv(name)
        del self.keys[name]
        kv = {"key": encode(name), "mod_revision": str(self.revision)}
        return {"type": "DELETE", "kv": kv, "before": old}

    def _record(self, events: list[Json]) -> None:
        if events:
            self.history.append((self.revision, events))

    def _kv(self, name: bytes) -> Json:
        key = self.keys[name]
        kv = {
            "key": encode(name),
            "create_revision": str(key.created),
            "mod_revision": str(key.revision),
            "value": encode(key.value),
        }
        return {**kv, "lease": str(key.lease)} if key.lease else kv


def encode(data: bytes) -> str:
    return b64encode(data).decode()


def _decode(text: str) -> bytes:
    return b64decode(text)
