"""Captures for tshark: packets that were never on a network, and what tshark reads in them."""

import json
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

DISSECTOR: Final = Path(__file__).resolve().parents[2] / "share" / "wireshark" / "sphtp.lua"
RAW_IP: Final = 101
UDP, TCP = 17, 6
LOOPBACK: Final = bytes([127, 0, 0, 1])


class Seen(NamedTuple):
    """The fields of one datagram or message, in order, as tshark shows them."""

    fields: list[tuple[str, str]]

    @property
    def is_malformed(self) -> bool:
        return any(name == "sphtp.malformed" for name, _ in self.fields)

    def of(self, name: str) -> list[str]:
        """The values of a field."""
        return [shown for field, shown in self.fields if field == f"sphtp.{name}"]


class Capture:
    """Packets of IPv4 without addresses of links, in the format of libpcap."""

    def __init__(self) -> None:
        self._packets: list[bytes] = []
        self._sequences: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._packets)

    def add_datagram(self, source: int, destination: int, data: bytes) -> None:
        """Add a datagram of UDP, without a checksum."""
        self._add(UDP, struct.pack(">4H", source, destination, 8 + len(data), 0) + data)

    def add_segment(self, source: int, destination: int, data: bytes) -> None:
        """Add the next bytes of a connection of TCP."""
        sequence = self._sequences.get((source, destination), 1)
        self._sequences[source, destination] = sequence + len(data)
        head = struct.pack(">HHIIBBHHH", source, destination, sequence, 1, 5 << 4, 0x18, 8192, 0, 0)
        self._add(TCP, head + data)

    def read(
        self, folder: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> list[list[Seen]]:
        """Let tshark read all packets; return what it shows of SphTP in each."""
        path = folder / "capture.pcap"
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, RAW_IP)
        path.write_bytes(head + b"".join(self._records()))
        command = ["tshark", "-n", "-X", f"lua_script:{DISSECTOR}", "-r", str(path), "-T", "json"]
        run = subprocess.run(
            [*command, *options],
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "HOME": str(folder), **(environment or {})},
        )
        assert run.returncode == 0, run.stderr.decode()
        assert b"Lua Error" not in run.stdout, run.stdout[run.stdout.index(b"Lua Error") :][:500]
        packets = json.loads(run.stdout, object_pairs_hook=_Pairs)
        return [list(_seen(packet)) for packet in packets]

    def _add(self, protocol: int, payload: bytes) -> None:
        size = 20 + len(payload)
        self._packets.append(
            struct.pack(">BBHHHBBH", 0x45, 0, size, 0, 0, 64, protocol, 0) + LOOPBACK * 2 + payload
        )

    def _records(self) -> Iterator[bytes]:
        for number, packet in enumerate(self._packets):
            yield struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON as tshark writes it, in which names occur more than once."""

    def every(self, name: str) -> Iterator[Any]:
        return (value for key, value in self if key == name)


def _seen(packet: _Pairs) -> Iterator[Seen]:
    for source in packet.every("_source"):
        for layers in source.every("layers"):
            yield from (Seen(list(_fields(layer))) for layer in layers.every("sphtp"))


def _fields(tree: _Pairs) -> Iterator[tuple[str, str]]:
    for name, value in tree:
        if isinstance(value, _Pairs):
            yield from _fields(value)
        elif name.startswith("sphtp."):
            yield name, value
