"""A second reader of groups, written from docs/reference/wire alone."""

from collections.abc import Callable
from typing import Any

import msgpack

from tests.interop.second_reader import Fields, Malformed, demand

Read = Callable[[Any], Any]


def number(most: int, least: int = 0) -> Read:
    def read(value: Any) -> Any:
        demand(type(value) is int and least <= value <= most, f"{value} is no such number")
        return value

    return read


def of(kind: type, most: int = 1 << 30) -> Read:
    def read(value: Any) -> Any:
        demand(type(value) is kind, f"{value} is no {kind}")
        demand(kind is bool or len(value) <= most, "too long")
        return value

    return read


def items(read_item: Read) -> Read:
    return lambda value: [read_item(item) for item in of(list, 65_536)(value)]


def row(*reads: Read) -> Read:
    def read(value: Any) -> Any:
        demand(len(of(list)(value)) == len(reads), f"{len(value)} fields")
        return [read_item(item) for read_item, item in zip(reads, value, strict=True)]

    return read


def or_nil(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def contribution(value: Any) -> Any:
    read_contribution(of(bytes)(value))
    return value.hex()


count = number(2**63)
wide = number(2**64 - 1)
words = of(str, 1024)
key = row(wide, wide)
keys = items(key)
seat = row(wide, wide, words, count, row(count, wide), of(bool), or_nil(count), of(bool))
seats = items(seat)

FIELDS: list[dict[str, Read]] = [
    {
        "version": count,
        "group": words,
        "member": key,
        "name": words,
        "on_death": words,
        "size": count,
        "has_state": of(bool),
        "founder": or_nil(key),
    },
    {"known": keys, "connected": keys},
    {"round": count, "removed": keys},
    {
        "round": count,
        "epoch": count,
        "begun": number(2**63, -1),
        "seats": seats,
        "heights": items(row(key, number(2**63, -1))),
        "founder": or_nil(key),
    },
    {"round": count, "epoch": count, "founder": key, "seats": seats},
    {"round": count},
    {"epoch": count},
    {"keys": keys},
    {"why": words},
    {"step": count},
    {"step": count},
    {"step": count, "payload": lambda value: of(bytes)(value).hex()},
    {"step": count},
    {"why": words},
    {"member": key, "contribution": contribution},
]


def read_contribution(data: bytes) -> Fields:
    demand(data[:1] == b"\0" and len(data) > 9, "no contribution")
    step = int.from_bytes(data[1:9], "little")
    demand(step <= 2**62, "a step beyond all")
    return {"form": 0, "step": step, "value": data[9:].hex()}


def read_group(data: bytes) -> Fields:
    """Decode a message between members of a group."""
    if data[:1] == b"\0":
        return read_contribution(data)
    demand(data[:1] == b"\1", "there is no such form")
    try:
        kind, *values = msgpack.unpackb(data[1:])
    except (ValueError, TypeError) as error:
        raise Malformed(str(error)) from None
    number(len(FIELDS) - 1)(kind)
    fields = FIELDS[kind]
    demand(len(values) == len(fields), f"{len(values)} fields")
    read = {name: read(value) for (name, read), value in zip(fields.items(), values, strict=True)}
    return {"form": 1, "kind": kind, **read}
