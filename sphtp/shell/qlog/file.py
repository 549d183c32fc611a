"""A qlog file: a first line that says what the others are, and one line per event.

It is a draft's QlogFileSeq (draft-ietf-quic-qlog-main-schema), with a plain line for each record.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from json import JSONEncoder
from os import PathLike
from typing import Any, Final

NAMESPACE: Final = "sphtp"
EVENT_SCHEMA: Final = "urn:sphtp:qlog:events:1"

BUFFER: Final = 1 << 16
"""Bytes that wait for the disk."""

log: Final = logging.getLogger("sphtp.qlog")


class QlogFile:
    """Written, buffered, until it is closed or an error comes, which harms nobody.

    ``clock`` gives seconds since 1970. Raises ``OSError`` when the file cannot be opened.
    """

    def __init__(self, path: str | PathLike[str], title: str, clock: Callable[[], float]) -> None:
        self.error: OSError | None = None
        self._title = title
        self._clock = clock
        self._start: float | None = None
        self._file = open(path, "w", BUFFER, encoding="utf-8", newline="\n")  # noqa: SIM115
        self._encode = JSONEncoder(separators=(",", ":")).encode

    def write(self, now: float, group: str | None, name: str, data: Mapping[str, Any]) -> None:
        """Write an event; ``now`` is in seconds, and counted from the first one."""
        if self._file.closed:
            return
        if self._start is None:
            self._begin(now)
        event: dict[str, Any] = {"time": to_milliseconds(now - (self._start or 0.0))}
        event["name"] = f"{NAMESPACE}:{name}"
        if group is not None:
            event["group_id"] = group
        self._write_line({**event, "data": data})

    def close(self) -> None:
        """Write what waits, and close. Closing twice is fine."""
        if self._start is None and not self._file.closed:
            self._begin(0.0)
        try:
            self._file.close()
        except OSError as error:
            # It is closed all the same, without what waited.
            self._fail(error)

    def _begin(self, now: float) -> None:
        self._start = now
        date = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        reference = {"clock_type": "monotonic", "epoch": "unknown", "wall_clock_time": date}
        fields = {
            "protocol_types": ["SphTP"],
            "time_format": "relative_to_epoch",
            "reference_time": reference,
        }
        # A node both dials and answers, so it is no client and no server.
        vantage_point = {"name": self._title, "type": "unknown"}
        self._write_line(
            {
                "file_schema": "urn:ietf:params:qlog:file:sequential",
                "serialization_format": "application/x-ndjson",
                "title": self._title,
                "event_schemas": [EVENT_SCHEMA],
                "trace": {"vantage_point": vantage_point, "common_fields": fields},
            }
        )

    def _write_line(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(self._encode(record) + "\n")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self.error is not None:
            return
        self.error = error
        log.error("%s: %s; no more is written", self._file.name, error.strerror)
        self.close()


def to_milliseconds(seconds: float) -> float:
    """Return what qlog gives times in, to the microsecond."""
    return round(seconds * 1e3, 3)
