"""The cases and the mutants of the model of a registry on etcd."""

import math
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from sphtp_server.registry import etcd
from sphtp_server.registry.etcd import EtcdRegistry
from sphtp_server.registry.keyspace import WatchState, parse_watch_untrusted
from tests.core.control.model import Case
from tests.core.control.model_mutants import Context, Mutant

_OWNED: Final = partial(Case, is_established=True)
_APART: Final = partial(_OWNED, wishes=9, partition="XA", divided_before=5)

CASES: Final = (
    _OWNED(name="etcd, two servers, one restarts, an owner", restarts=1),
    Case(name="etcd, two servers, a delay, the first million", ticks=1, delays=1, most=1_000_000),
    Case(name="etcd, two servers, 1 loss", losses=1),
    _APART(name="etcd, two servers, one cut off, an owner", ticks=3),
    Case(name="etcd, one server, 2 losses", servers="A", ticks=2, losses=2),
    Case(name="etcd, one server, a delay", servers="A", ticks=2, delays=1, duplicates=1),
    _OWNED(
        name="etcd, one server, it restarts, 1 loss", servers="A", ticks=2, losses=1, restarts=1
    ),
    _OWNED(
        name="etcd, one server, etcd cut off and compacted",
        servers="A",
        wishes=9,
        ticks=5,
        partition="E",
        divided_before=4,
        compactions=1,
    ),
    _OWNED(
        name="etcd, one server, an owner that is not received",
        servers="A",
        wishes=9,
        ticks=4,
        partition="X",
        is_one_way=True,
        divided_before=4,
    ),
)


def _unguarded(self: Any, record: Any) -> Any:
    return _REGISTRATION(self, record)._replace(guard=None)


_REGISTRATION: Final[Any] = vars(EtcdRegistry)["_registration"]


def _not_compacted(document: Any) -> WatchState:
    return parse_watch_untrusted(document)._replace(is_compacted=False)


def _changed(name: str, value: Any) -> Any:
    def change() -> Context:
        return patch.object(EtcdRegistry, name, value)

    return change


MUTANTS: Final = (
    Mutant(
        "etcd: an id is claimed only if no other client has it",
        _changed("_registration", _unguarded),
        Case(name="etcd, two servers"),
    ),
    Mutant(
        "etcd: a server without proof is silent",
        _changed("_proven", property(lambda self: math.inf)),
        _APART(name="etcd, two servers, one cut off", ticks=3),
    ),
    Mutant(
        "etcd: a server lists all keys again if changes were compacted",
        partial(patch.object, etcd, "parse_watch_untrusted", _not_compacted),
        _OWNED(
            name="etcd, one server, etcd cut off",
            servers="A",
            ticks=2,
            partition="E",
            compactions=1,
        ),
    ),
)
