"""The options of ``sphtp relay``: quantities with units, addresses, and faults."""

import math
import re
from collections.abc import Mapping
from typing import Any

import click

from sphtp.testing import Faults
from sphtp.testing.network import RANGES, Address
from sphtp_client.options import Option
from sphtp_client.relay.impairment import Direction

SHARE: Mapping[str, float] = {"": 1, "%": 0.01}
SECONDS: Mapping[str, float] = {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6}
BITS_PER_SECOND: Mapping[str, float] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
BYTES: Mapping[str, float] = {"": 1, "k": 1e3, "Ki": 2**10, "M": 1e6, "Mi": 2**20}
COUNT: Mapping[str, float] = {"": 1}

_QUANTITY = re.compile(r"([-+]?[0-9.]+(?:e[-+]?[0-9]+)?) ?([A-Za-z%]*)")


class Quantity(click.ParamType[float]):
    """The type of an option: a number in a range, with an optional unit behind it."""

    def __init__(
        self, name: str, units: Mapping[str, float], low: float, high: float, *, whole: bool = False
    ) -> None:
        self.name = name
        self._units = units
        self._low = low
        self._high = high
        self._whole = whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number in its base unit. Raises ``click.BadParameter`` for a wrong one."""
        if not isinstance(value, str):
            return float(value)
        match = _QUANTITY.fullmatch(value)
        try:
            number = float(match[1]) * self._units[match[2]] if match else math.nan
        except (ValueError, KeyError):
            number = math.nan
        if math.isnan(number):
            units = ", ".join(unit for unit in self._units if unit)
            wanted = f"a number, or one with a unit ({units})" if units else "a number"
            self.fail(f"{value!r} is not {wanted}", param, ctx)
        if not self._low <= number <= self._high:
            self.fail(f"{value} is out of range: {self._low:.12g} to {self._high:.12g}", param, ctx)
        return round(number) if self._whole else number


class UdpAddress(click.ParamType[Address]):
    """The type of an address: ``host:port`` or ``udp://host:port``, with IPv6 in brackets."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Return host and port. Raises ``click.BadParameter`` for a wrong address."""
        if not isinstance(value, str):
            host, port = value
            return host, port
        scheme, _, rest = value.rpartition("://")
        if scheme not in ("", "udp"):
            self.fail(f"{value!r} is {scheme}; the relay forwards only UDP: host:port", param, ctx)
        host, colon, port = rest.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        is_right = bare and (":" not in bare or host != bare)
        if not (colon and is_right and port.isascii() and port.isdecimal() and len(port) < 6):
            self.fail(f"{value!r} is not host:port or [IPv6]:port", param, ctx)
        if int(port) > 65_535:
            self.fail(f"port {port} is over 65535", param, ctx)
        return bare, int(port)


FAULTS: Mapping[str, tuple[str, Mapping[str, float], str]] = {
    "loss": ("share", SHARE, "Share of datagrams lost, independently of each other: 0.05 or 5%."),
    "burst": ("share", SHARE, "Share of datagrams outside of bursts that begin a burst of losses."),
    "burst_length": ("count", COUNT, "Datagrams lost in a burst, on average."),
    "duplicate": ("share", SHARE, "Share of datagrams that are duplicated."),
    "corrupt": ("share", SHARE, "Share of datagrams in which one bit is flipped."),
    "delay": ("time", SECONDS, "Delay of each datagram: 0.05 or 50ms."),
    "jitter": ("time", SECONDS, "Largest extra delay, random for each datagram; it reorders."),
    "reorder": ("share", SHARE, "Share of datagrams held back, so that later ones overtake them."),
    "reorder_delay": ("time", SECONDS, "Time for which datagrams of --reorder are held back."),
    "rate": ("bits/s", BITS_PER_SECOND, "Rate of the link: 20M. Default: no limit."),
    "queue": (
        "bytes",
        BYTES,
        "Size of the queue before --rate; when it is full, datagrams are dropped.",
    ),
    "mtu": ("bytes", BYTES, "Size of the largest datagram carried; larger ones are lost."),
}
"""The fields of ``Faults`` that are options: type, units and help text."""

DEFAULTS = {name: getattr(Faults(delay=0), name) for name in FAULTS}
WHOLE = {"queue", "mtu"}


def faults_from(values: Mapping[str, Any], direction: Direction) -> Faults:
    """Return the faults of one direction, whose own options override those for both."""
    both = {name: values[name] for name in FAULTS}
    own = {name: values[f"{direction.value}_{name}"] for name in FAULTS}
    given = {name: value for name, value in own.items() if value is not None}
    return Faults(**both | given)


def _fault(name: str, prefix: str = "") -> Option:
    kind, units, text = FAULTS[name]
    low, high = RANGES[name]
    return click.option(
        f"--{prefix}{name}".replace("_", "-"),
        help=text,
        type=Quantity(kind, units, low, high, whole=name in WHOLE),
        default=None if prefix else DEFAULTS[name],
        show_default=not prefix and name != "rate",
        # The help of the verb explains these forms; a line for each would triple its length.
        hidden=bool(prefix),
    )


RELAY_OPTIONS = (
    click.argument("listen", type=UdpAddress()),
    click.argument("target", type=UdpAddress()),
    *(_fault(name) for name in FAULTS),
    *(_fault(name, f"{way.value}-") for way in Direction for name in FAULTS),
    click.option(
        "--seed",
        type=int,
        help="Random seed, which makes the faults repeatable. Default: a new one.",
    ),
    click.option(
        "--clients",
        type=click.IntRange(1, 4096),
        default=256,
        show_default=True,
        help="Most clients at a time; datagrams of others are dropped.",
    ),
    click.option(
        "--idle",
        type=Quantity("time", SECONDS, 0.001, 86_400),
        default=60.0,
        show_default=True,
        help="Time without a datagram in either direction after which a client is removed.",
    ),
    click.option(
        "--every",
        type=Quantity("time", SECONDS, 0.01, 86_400),
        default=2.0,
        show_default=True,
        help="Shortest time between two lines of progress.",
    ),
    click.option(
        "--duration",
        type=Quantity("time", SECONDS, 0.001, 1e9),
        help="End after this time. Default: never.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per line."),
)
