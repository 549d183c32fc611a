"""The reports of a relay: lines and a table for people, or JSON lines for programs."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import click
from rich.console import Console
from rich.table import Table

from sphtp.testing import Faults, LinkStatistics
from sphtp.testing.network import Address
from sphtp_client.relay.options import DEFAULTS
from sphtp_client.relay.relay import RelayStatistics


@dataclass(frozen=True, slots=True)
class RelayStart:
    """The parameters with which a relay was started."""

    address: Address
    target: Address
    up: Faults
    down: Faults
    seed: int


class RelayReporter(Protocol):
    """The interface of reporters of a relay; times are in seconds since its start."""

    def listening(self, start: RelayStart) -> None:
        """Report that the relay listens."""
        ...

    def progress(self, seconds: float, statistics: RelayStatistics) -> None:
        """Report the figures so far. Called only if they have changed."""
        ...

    def finished(self, seconds: float, statistics: RelayStatistics) -> None:
        """Report the end of the relay."""
        ...


class JsonRelayReporter:
    """A reporter that prints one JSON object per line."""

    def listening(self, start: RelayStart) -> None:
        """Write the addresses, the faults and the seed."""
        self._write(
            "listening",
            address=_written(start.address),
            target=_written(start.target),
            seed=start.seed,
            up=_finite(asdict(start.up)),
            down=_finite(asdict(start.down)),
        )

    def progress(self, seconds: float, statistics: RelayStatistics) -> None:
        """Write the figures so far."""
        self._write("progress", seconds=round(seconds, 3), **asdict(statistics))

    def finished(self, seconds: float, statistics: RelayStatistics) -> None:
        """Write the figures at the end."""
        self._write("finished", seconds=round(seconds, 3), **asdict(statistics))

    def _write(self, event: str, **values: Any) -> None:
        click.echo(json.dumps({"event": event, **values}))


class TextRelayReporter:
    """A reporter that prints lines while the relay runs, and a table at the end."""

    def listening(self, start: RelayStart) -> None:
        """Write the addresses, the faults and the seed."""
        click.echo(f"listening on {_written(start.address)} for {_written(start.target)}")
        for way, faults in (("up", start.up), ("down", start.down)):
            click.echo(f"{way}: {_sentence(faults)}")
        click.echo(f"seed {start.seed}; Ctrl-C ends it and shows the figures")

    def progress(self, seconds: float, statistics: RelayStatistics) -> None:
        """Write the most important figures."""
        ways = (("up", statistics.up), ("down", statistics.down))
        parts = "".join(f"; {way} {_brief(figures)}" for way, figures in ways)
        click.echo(f"{seconds:.1f} s: clients {statistics.clients}{parts}")

    def finished(self, seconds: float, statistics: RelayStatistics) -> None:
        """Write all figures."""
        table = Table(title=f"{seconds:.1f} s", title_justify="left")
        table.add_column("")
        table.add_column("up", justify="right")
        table.add_column("down", justify="right")
        up, down = asdict(statistics.up), asdict(statistics.down)
        for name in up:
            table.add_row(name.replace("_", " "), _figure(name, up), _figure(name, down))
        Console().print(table)
        click.echo(
            f"clients at the end {statistics.clients}; datagrams refused {statistics.refused}, "
            f"overflowed {statistics.overflowed}, abandoned {statistics.abandoned}, "
            f"socket errors {statistics.socket_errors}"
        )


def _brief(figures: LinkStatistics) -> str:
    shown = f"{figures.offered} offered, {figures.carried} carried, {figures.lost} lost"
    if figures.queue_dropped or figures.queue_bytes_max:
        shown += f", {figures.queue_dropped} dropped by the queue ({figures.queue_bytes} bytes in)"
    return shown


def _sentence(faults: Faults) -> str:
    changed = {
        name.replace("_", " "): value
        for name, value in asdict(faults).items()
        if name in DEFAULTS and value != DEFAULTS[name]
    }
    return ", ".join(f"{name} {value:.12g}" for name, value in changed.items()) or "no faults"


def _figure(name: str, figures: Mapping[str, float]) -> str:
    value = figures[name]
    return f"{value * 1e3:.2f} ms" if "delay" in name else f"{value}"


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value == math.inf else value for name, value in values.items()}


def _written(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
