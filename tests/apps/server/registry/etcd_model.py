"""Every order of changes in a small cluster whose servers share a registry on etcd.

The search is that of ``tests.core.control.model``, and so are the rules. There is one more node, E:
the simulated etcd. The server's part of the registry, ``EtcdRegistry``, decides as it does in a
real server; only its requests are carried by links.

- A request is answered at once, or it is lost and fails with the next tick. What a server knows of
  the store comes by its watch alone, and the changes on their way are a link like any other: they
  wait for as long as the search likes. So answers that come late add nothing.
- Between a server and etcd the network may be divided, as between any nodes. Then requests and
  changes are lost, and etcd ends the leases that are over.
- A server may start again at any moment, without what it knew; etcd may be compacted.
"""

import json
from base64 import b64decode
from collections.abc import Hashable, Mapping
from typing import Any, Final

from sphtp.core.control.server import ServerMachine
from sphtp_server.registry.etcd import EtcdRegistry, StoreRequest, StoreTask
from tests.apps.server.registry.simulated_etcd import EtcdError, SimulatedEtcd
from tests.core.control.model import Case, Explorer, Moment
from tests.core.control.model_world import (
    CLIENTS,
    EXPIRY,
    Given,
    Input,
    Node,
    Sent,
    World,
    make_server,
)

ETCD: Final = "E"


class EtcdServerNode(Node):
    """A server with its part of the registry."""

    def __init__(self, name: str, start: int, world: World) -> None:
        self._registry = EtcdRegistry(EXPIRY, 16)
        self._open: dict[StoreTask, StoreRequest] = {}
        super().__init__(name, start, world)

    def make(self, start: int, known: str, *, is_founder: bool) -> ServerMachine:
        return make_server(self.name, start, known, is_founder=False, registry=self._registry)

    def take(self, given: Given) -> None:
        if isinstance(given, bytes) and given.startswith(b"{"):
            self._take_answer(json.loads(given))
            self._run_timers()
            return
        if given is Input.TICK:
            self.now += 1
            for request in [it for it in self._open.values() if it.timeout is not None]:
                self._registry.handle_failure(self.now, self._open.pop(request.task), "lost")
            self.machine.handle_registry(self.now)
            self._run_timers()
            return
        super().take(given)

    def print(self) -> Hashable:
        requested = frozenset(it for it in StoreTask if it in self._open)
        # Its order is that of the next transaction.
        dirty = tuple(vars(self._registry)["_dirty"])
        return super().print(), requested, dirty

    def _take_answer(self, answer: dict[str, Any]) -> None:
        task = StoreTask[answer["task"]]
        request = self._open.get(task)
        if request is None:
            return
        if task is not StoreTask.WATCH:
            del self._open[task]
        if "error" in answer:
            self._registry.handle_failure(self.now, request, answer["error"])
        elif not self._registry.handle_answer(self.now, request, answer["document"]):
            self._open.pop(task, None)
        self.machine.handle_registry(self.now)

    def _collect(self) -> None:
        super()._collect()
        while (request := self._registry.poll_request(self.now)) is not None:
            self._open[request.task] = request
            asked = {"task": request.task.name, "path": request.path, "body": request.body}
            self._sent.append(Sent(ETCD, _encode({**asked, "by": self.name})))
            super()._collect()


class EtcdNode(Node):
    """The store, which answers each request, and sends each change to those that watch."""

    def __init__(self, name: str, start: int, world: World) -> None:
        self._watches: dict[str, int] = {}
        super().__init__(name, start, world)

    def make(self, start: int, known: str, *, is_founder: bool) -> Any:
        return SimulatedEtcd()

    def begin(self) -> None:
        """A store starts nothing by itself."""

    def take(self, given: Given) -> None:
        if given is Input.TICK:
            self.now += 1
            self.machine.expire(self.now)
        elif given is Input.COMPACT:
            self.machine.compact()
        elif isinstance(given, bytes):
            self._serve(json.loads(given))
        self._publish()

    def print(self) -> Hashable:
        return super().print(), tuple(self.machine.keys), frozenset(self._watches.items())

    def _serve(self, asked: Mapping[str, Any]) -> None:
        server, task, body = asked["by"], asked["task"], asked["body"]
        if task == StoreTask.WATCH.name:
            self._watches[server] = int(body["create_request"]["start_revision"])
            return
        try:
            answer = {"document": self.machine.handle(self.now, asked["path"], body)}
        except EtcdError as error:
            answer = {"error": str(error)}
        self._sent.append(Sent(server, _encode({"task": task, **answer})))

    def _publish(self) -> None:
        for server, start in tuple(self._watches.items()):
            try:
                events, self._watches[server] = self.machine.changes(start)
            except EtcdError:
                events, result = [], {"canceled": True, "compact_revision": "1"}
                del self._watches[server]
            else:
                events = [{key: it[key] for key in it if key != "before"} for it in events]
                result = {"events": events}
            if events or "canceled" in result:
                change = {"task": StoreTask.WATCH.name, "document": {"result": result}}
                self._sent.append(Sent(server, _encode(change)))


def describe_change(data: bytes) -> str:
    """Return the words for a change on its way from etcd to a server."""
    document = json.loads(data).get("document", {}).get("result", {})
    keys = [b64decode(it["kv"]["key"]).decode() for it in document.get("events", ())]
    return ", ".join(keys) or "the watch ends"


def _encode(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


_ENDED: Final = _encode({"task": StoreTask.WATCH.name, "error": "the connection has ended"})


class EtcdExplorer(Explorer):
    """Walks over every moment of a case with a registry on etcd."""

    others = ETCD
    # A server's lease is of two expiries and a tick. Its last renewal may be a tick old when the
    # network divides; afterwards it takes up to two ticks to renew it again.
    too_long = 2 * EXPIRY - 2

    def __init__(self, case: Case) -> None:
        self._urgency: dict[int, bool] = {}
        self._begins_watch = set[int]()
        names = case.servers + case.late
        ways = [(one, other) for one in CLIENTS + names + ETCD for other in CLIENTS + names + ETCD]
        linked = [it for it in ways if it[0] != it[1] and self._are_linked(*it)]
        self._store_links = [link for link, way in enumerate(linked) if ETCD in way]
        super().__init__(case)

    def _make(self, name: str, start: int) -> Node:
        kinds = dict.fromkeys(CLIENTS, Node) | {ETCD: EtcdNode}
        return kinds.get(name, EtcdServerNode)(name, start, self._world)

    def _are_linked(self, one: str, other: str) -> bool:
        clients = (one in CLIENTS) + (other in CLIENTS)
        return clients < 2 and not (clients and ETCD in (one, other))

    def _is_bus(self, way: tuple[str, str]) -> bool:
        return ETCD not in way

    def _begin(self, moment: Moment, index: int) -> Moment:
        return self._served(super()._begin(moment, index))

    def _give(self, moment: Moment, index: int, given: int, link: int | None = None) -> Moment:
        return self._served(super()._give(moment, index, given, link))

    def _served(self, moment: Moment) -> Moment:
        """Carry requests to etcd, and their answers back."""
        while (urgent := self._find_urgent(moment.links)) is not None:
            asked, place = urgent
            queue = moment.links[asked]
            links = list(moment.links)
            links[asked] = (*queue[:place], *queue[place + 1 :])
            if queue[place] in self._begins_watch:
                # The changes on their way are those of the watch before.
                one, other = self._ways[asked]
                links[self._link[other, one]] = ()
            begun = moment._replace(links=tuple(links))
            moment = super()._give(begun, self._to[asked], queue[place])
        return moment

    def _describe_input(self, given: int) -> str:
        data = self._messages[given] if given >= 0 else Input.TICK
        if isinstance(data, bytes) and data.startswith(b"{"):
            return describe_change(data)
        return super()._describe_input(given)

    def _heal(self, moment: Moment) -> Moment:
        moment = super()._heal(moment)
        links = list(moment.links)
        for link, (one, _) in enumerate(self._ways):
            if one == ETCD and self._is_cut[link]:
                links[link] = (self._number_of(_ENDED),)
        return moment._replace(links=tuple(links))

    def _find_urgent(self, links: tuple[tuple[int, ...], ...]) -> tuple[int, int] | None:
        """Return a request, or an answer to one: they arrive before anything else happens."""
        for link in self._store_links:
            for place, number in enumerate(links[link]):
                if self._is_urgent(number):
                    return link, place
        return None

    def _is_urgent(self, number: int) -> bool:
        known = self._urgency.get(number)
        if known is None:
            message = self._messages[number]
            assert isinstance(message, bytes)
            document = json.loads(message)
            is_watch = document["task"] == StoreTask.WATCH.name
            if is_watch and "by" in document:
                self._begins_watch.add(number)
            known = self._urgency[number] = "by" in document or not is_watch
        return known
