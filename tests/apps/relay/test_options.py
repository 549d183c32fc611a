"""Numbers with units, and addresses."""

import click
import pytest

from sphtp_client.relay.options import (
    BITS_PER_SECOND,
    BYTES,
    SECONDS,
    SHARE,
    Quantity,
    UdpAddress,
)
from tests.cases import each

KINDS = {
    "share": Quantity("share", SHARE, 0, 1),
    "time": Quantity("time", SECONDS, 0, 3600),
    "rate": Quantity("rate", BITS_PER_SECOND, 1, float("inf")),
    "bytes": Quantity("bytes", BYTES, 0, 2**40, whole=True),
}


@each(
    ("kind", "text", "number"),
    [
        ("share", "0.05", 0.05),
        ("share", "5%", 0.05),
        ("share", "100 %", 1.0),
        ("time", "0.5", 0.5),
        ("time", "50ms", 0.05),
        ("time", "2e1us", 2e-5),
        ("rate", "20M", 20e6),
        ("rate", "1.5 G", 1.5e9),
        ("bytes", "64Ki", 65_536),
        ("bytes", "125k", 125_000),
    ],
)
def test_units(kind: str, text: str, number: float) -> None:
    assert KINDS[kind].convert(text, None, None) == pytest.approx(number)


@each(
    ("kind", "text"),
    [
        ("share", "101%"),
        ("share", "-0.1"),
        ("share", ""),
        ("share", "%"),
        ("share", "nan"),
        ("share", "0.5s"),
        ("time", "1.2.3"),
        ("time", "inf"),
        ("time", "50MS"),
        ("rate", "0"),
        ("bytes", "64kB"),
        ("bytes", "٣"),
    ],
)
def test_what_is_none(kind: str, text: str) -> None:
    with pytest.raises(click.BadParameter):
        KINDS[kind].convert(text, None, None)


@each(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65_535)),
        ("udp://127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("udp://[::1]:9", ("::1", 9)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert UdpAddress().convert(text, None, None) == address


@each(
    "text",
    [
        "",
        "9000",
        ":9000",
        "host",
        "host:",
        "host:x",
        "::1:9000",
        "[]:1",
        "h:65536",
        "h:-1",
        "tcp://h:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter):
        UdpAddress().convert(text, None, None)
