"""Numbers with units and addresses, as people type them."""

import math
import re
from collections.abc import Mapping
from typing import Any

import click

from sphtp.testing.network import Address

SHARE: Mapping[str, float] = {"": 1, "%": 0.01}
SECONDS: Mapping[str, float] = {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6}
BITS_PER_SECOND: Mapping[str, float] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
BYTES: Mapping[str, float] = {"": 1, "k": 1e3, "Ki": 2**10, "M": 1e6, "Mi": 2**20}
COUNT: Mapping[str, float] = {"": 1}

_QUANTITY = re.compile(r"([-+]?[0-9.]+(?:e[-+]?[0-9]+)?) ?([A-Za-z%]*)")


class Quantity(click.ParamType[float]):
    """A number in a range, with a unit behind it that may be left out."""

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
        """Return the number in its base unit; wrong ones end the call."""
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
    """``host:port`` or ``udp://host:port``; IPv6 in brackets."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Return host and port; wrong ones end the call."""
        if not isinstance(value, str):
            host, port = value
            return host, port
        scheme, _, rest = value.rpartition("://")
        if scheme not in ("", "udp"):
            self.fail(f"{value!r} is {scheme}, and only UDP is relayed: host:port", param, ctx)
        host, colon, port = rest.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        is_right = bare and (":" not in bare or host != bare)
        if not (colon and is_right and port.isascii() and port.isdecimal() and len(port) < 6):
            self.fail(f"{value!r} is not host:port or [IPv6]:port", param, ctx)
        if int(port) > 65_535:
            self.fail(f"port {port} is over 65535", param, ctx)
        return bare, int(port)
