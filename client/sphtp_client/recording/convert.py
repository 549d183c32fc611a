"""The verb ``sphtp convert``: write a recording as lines of JSON, or as CSV."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from sphtp.core.topics import TopicPattern
from sphtp.errors import SettingsError, SphtpError
from sphtp_client.program import ExitStatus
from sphtp_client.recording.mcap_file import (
    NANOSECONDS,
    RecordedMessage,
    Recording,
    read_recording,
)
from sphtp_client.recording.values import RecordingError, fields_of, message_tree

COLUMNS = ("time", "topic", "peer", "number")
"""The first columns of the table; the columns of fields follow."""


class ConvertedMessage(NamedTuple):
    """A message: its time in seconds, its origin and its content."""

    time: float
    topic: str
    peer: str
    number: int
    value: Any


def rows(recording: Recording, patterns: Iterable[str] = ()) -> Iterator[ConvertedMessage]:
    """Iterate over the messages whose topics a pattern selects; without patterns, over all.

    Messages that cannot be decoded are left out.
    """
    wanted = [TopicPattern(pattern) for pattern in patterns]
    for message in recording.messages():
        channel = message.channel
        if wanted and not any(pattern.matches(channel.name) for pattern in wanted):
            continue
        try:
            tree = tree_of(message)
        except (RecordingError, TypeError):
            continue
        time = message.time / NANOSECONDS
        yield ConvertedMessage(time, channel.name, channel.peer, message.number, tree)


def tree_of(message: RecordedMessage) -> Any:
    """Return the JSON form of a message, without the object that a recording may put around it.

    Raises ``RecordingError`` or ``TypeError`` if the message cannot be decoded.
    """
    tree = message_tree(message.value())
    return tree["value"] if tree.keys() == {"value"} else tree


def write_jsonl(recording: Recording, patterns: Iterable[str], output: TextIO) -> int:
    """Write an object for each message; return their number."""
    count = 0
    for row in rows(recording, patterns):
        print(json.dumps(row._asdict(), ensure_ascii=False), file=output)
        count += 1
    return count


def write_csv(recording: Recording, patterns: Iterable[str], output: TextIO) -> int:
    """Write a line for each message, with a column for each field of any message.

    Return the number of messages. The recording is read twice, first for the columns.
    """
    fields: dict[str, None] = {}
    for row in rows(recording, patterns):
        fields.update(dict.fromkeys(path for path, _ in fields_of(row.value)))
    table = csv.writer(output)
    table.writerow([*COLUMNS, *fields])
    count = 0
    for row in rows(recording, patterns):
        cells = dict(fields_of(row.value))
        table.writerow([*row[:4], *(cells.get(name, "") for name in fields)])
        count += 1
    return count


WRITERS = {"jsonl": write_jsonl, "csv": write_csv}


@click.command(short_help="Write a recording as JSON lines or CSV.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--to", "form", type=click.Choice([*WRITERS]), required=True, help="Output format.")
@click.option(
    "--topic",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Write only the topics that this pattern selects; repeatable. Default: all.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file instead of standard output.",
)
def convert(file: Path, form: str, patterns: tuple[str, ...], output: Path | None) -> None:
    """Write the messages of a recording as lines of JSON, or as CSV.

    With jsonl, each line has the keys time, topic, peer, number and value. With csv, each field of
    the messages has a column of its own, such as x[0] and position.y. Times are in seconds of the
    cluster's clock. Messages that cannot be decoded are left out.

    Exit codes: 0 the messages are written, 2 usage, 3 FILE cannot be read, or the output cannot be
    written.
    """
    try:
        recording = read_recording(file)
        with _opened(output) as stream:
            count = WRITERS[form](recording, patterns, stream)
    except BrokenPipeError:
        sys.stderr.close()
        return
    except (SphtpError, OSError) as error:
        click.echo(f"failed: {error}", err=True)
        status = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
        sys.exit(status.code)
    if recording.cut is not None:
        click.echo(recording.cut, err=True)
    click.echo(f"{count} messages", err=True)


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file
