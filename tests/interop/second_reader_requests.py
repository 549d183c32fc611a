"""A second reader of requests, written from docs/reference/wire alone."""

from tests.interop.second_reader import Cursor, Fields, demand, record
from tests.interop.second_reader_streams import sized_text, text


def _name(cursor: Cursor) -> str:
    name = cursor.take(cursor.u8())
    try:
        return name.decode()
    except UnicodeDecodeError:
        demand(condition=False, why="not UTF-8")
        raise


def _hex(cursor: Cursor) -> str:
    return cursor.rest().hex()


def _reason(cursor: Cursor) -> int:
    reason = cursor.u8()
    demand(1 <= reason <= 7, f"there is no reason {reason}")
    return reason


MESSAGES = {
    1: record(number=Cursor.u32, milliseconds=Cursor.u32, name=_name, value=_hex),
    2: record(number=Cursor.u32),
    3: record(number=Cursor.u32, value=_hex),
    4: record(
        number=Cursor.u32,
        reason=_reason,
        type=sized_text,
        text=lambda cursor: text(cursor.take(cursor.u16())),
        data=_hex,
    ),
    5: record(),
}


def read_request(data: bytes) -> Fields:
    """Decode a message of a channel of requests."""
    cursor = Cursor(data)
    kind = cursor.u8()
    demand(kind in MESSAGES, f"there is no message {kind}")
    fields = {"kind": kind, **MESSAGES[kind](cursor)}
    cursor.end()
    return fields
