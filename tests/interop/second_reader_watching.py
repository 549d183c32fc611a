"""A second reader of status and watchers, written from docs/reference/wire alone."""

import math
from typing import Any

import msgpack

from tests.interop.page import rows_under
from tests.interop.second_reader import Fields, Malformed, demand
from tests.interop.second_reader_groups import items, number, of, row

wide = number(2**64 - 1)


def value_of(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise Malformed(str(error)) from None


# The status of a client


def decimal(value: Any) -> Any:
    demand(type(value) in (int, float) and math.isfinite(value), "no number")
    demand(abs(value) <= 1e18, "a number beyond all")
    return value


def plain(kind: str, value: Any) -> Any:
    """Read a value of a kind that the table of the page uses and does not define."""
    match kind:
        case "id" | "count":
            return wide(value)
        case "number":
            return decimal(value)
        case "text":
            return of(str)(value)[:255]
    raise KeyError(kind)


def maps() -> dict[str, dict[str, str]]:
    """Return the kind of each key of each map, as the page has them."""
    found = {}
    for name, keys in rows_under("The document of a status"):
        pairs = [key.partition(",")[0].split(" ", 1) for key in keys.split("; ")]
        found[name] = {key.strip("`"): kind for key, kind in pairs}
    return found


MAPS = maps()


def read_kind(kind: str, value: Any) -> Any:
    if kind.endswith(" or nil"):
        return None if value is None else read_kind(kind.removesuffix(" or nil"), value)
    if kind.startswith("list of "):
        demand(len(of(list)(value)) <= 2048, "a long list")
        return [read_kind(kind.removeprefix("list of "), item) for item in value]
    if kind in MAPS:
        read = of(dict)(value)
        return {key: read_kind(inner, read.get(key)) for key, inner in MAPS[kind].items()}
    return plain(kind, value)


def metric(value: Any) -> Any:
    name, labels, amount = row(of(str), of(dict), decimal)(value)
    return [name, {of(str)(key): of(str)(label) for key, label in labels.items()}, amount]


def read_status(data: bytes) -> Fields:
    """Decode a question for the status of a client, or an answer."""
    value = value_of(data)
    if type(value) is str:
        return {"question": value}
    answer, document = row(of(str), lambda value: value)(value)
    match answer:
        case "status":
            document = read_kind("status", document)
        case "metrics":
            document = items(metric)(document)
        case _:
            demand(document is None, "an answer to no question")
    return {"answer": answer, "document": document}


# The steps of a group

member = row(wide, wide, of(str))
MESSAGES = [
    None,
    {"step": wide, "members": items(member)},
    {"first": wide, "last": wide},
    {"step": wide},
]


def read_watch(data: bytes) -> Fields:
    """Decode a message to a watcher of a group."""
    if data[:1] == b"\0":
        demand(len(data) > 9, "no contribution")
        step = int.from_bytes(data[1:9], "little")
        return {"form": 0, "step": step, "value": data[9:].hex()}
    demand(data[:1] == b"\1", "there is no such form")
    kind, *values = of(list)(value_of(data[1:])) or [-1]
    number(len(MESSAGES) - 1)(kind)
    fields = MESSAGES[kind]
    if fields is None:
        return {"form": 1, "kind": kind, "member": member(values)}
    demand(len(values) == len(fields), f"{len(values)} fields")
    read = {name: read(value) for (name, read), value in zip(fields.items(), values, strict=True)}
    return {"form": 1, "kind": kind, **read}
