"""Values on the command line and in output: JSON, with substitutes for values that it lacks."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from math import isfinite
from typing import Any, Final

import trio

from sphtp.errors import SettingsError

STDIN: Final = 0
LONGEST_LINE: Final = 64 * 1024 * 1024


def parse_value(text: str, origin: str) -> Any:
    """Return the value of a JSON text. Raises ``SettingsError``, which names ``origin``."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        hint = f"""; a text has quotes: '"{text}"'""" if text.isalnum() else ""
        raise SettingsError(f"{origin} is no JSON: {error}{hint}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def to_json(value: Any) -> Any:
    """Return a value of a message as a value of JSON.

    Bytes become ``{"base16": "..."}``, arrays become lists, and NaN and infinity become text.
    """
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): to_json(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(it) for it in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base16": bytes(value).hex()}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return to_json(value.tolist())
    # A timestamp of msgpack, or a complex number of an array.
    return str(value)


async def stdin_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input that are not blank.

    Raises ``SettingsError`` for a line that is not UTF-8, or exceeds ``LONGEST_LINE`` bytes by more
    than one read.
    """
    rest = b""
    while data := await _read_stdin():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield _decoded(line)
        if len(rest) > LONGEST_LINE:
            raise SettingsError(f"a line of standard input is over {LONGEST_LINE} bytes")
    if rest.strip():
        yield _decoded(rest)


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"standard input is no text: {error}") from error


async def _read_stdin() -> bytes:
    # A reading thread would survive Ctrl-C, and hold a lock that Python needs at its end.
    try:
        await trio.lowlevel.wait_readable(STDIN)
    except PermissionError:
        await trio.lowlevel.checkpoint()  # a file, which is always readable
    return os.read(STDIN, 65536)
