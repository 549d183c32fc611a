"""`sphtp relay` as a user runs it."""

import json
import signal
import socket
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

from click.testing import CliRunner, Result

from sphtp.testing import Faults
from sphtp_client.relay.command import relay
from sphtp_client.relay.impairment import Direction
from sphtp_client.relay.options import faults_from
from tests.cases import each

ADDRESSES = ("127.0.0.1:0", "127.0.0.1:9")
PROGRAM = "from sphtp_client.relay.command import relay; relay()"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(relay, arguments)


def test_it_is_a_verb() -> None:
    project = tomllib.loads(
        (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    )
    value = project["project"]["entry-points"]["sphtp.commands"]["relay"]
    assert EntryPoint("relay", value, "sphtp.commands").load() is relay


def test_the_options_become_faults() -> None:
    arguments = [*ADDRESSES, "--loss", "5%", "--rate", "20M", "--queue", "125Ki", "--delay", "25ms"]
    arguments += ["--reorder-delay", "0.1", "--up-loss", "0", "--down-mtu", "1200"]
    values = relay.make_context("relay", arguments).params
    common = Faults(rate=20e6, queue=128_000, delay=0.025, reorder_delay=0.1)
    assert faults_from(values, Direction.UP) == common
    assert faults_from(values, Direction.DOWN) == replace(common, loss=0.05, mtu=1200)


def test_without_options_nothing_happens_to_datagrams() -> None:
    values = relay.make_context("relay", list(ADDRESSES)).params
    assert all(faults_from(values, way) == Faults(delay=0) for way in Direction)


@each(
    ("arguments", "complaint"),
    [
        ((), "Missing argument 'LISTEN'"),
        (("127.0.0.1:0",), "Missing argument 'TARGET'"),
        (("nonsense", "127.0.0.1:9"), "'nonsense' is not host:port"),
        (("127.0.0.1:0", "127.0.0.1:99999"), "port 99999 is over 65535"),
        ((*ADDRESSES, "--loss", "2"), "2 is out of range: 0 to 1"),
        ((*ADDRESSES, "--loss", "much"), "'much' is not a number"),
        ((*ADDRESSES, "--delay", "5min"), "'5min' is not a number, or one with a unit (s, ms, us)"),
        ((*ADDRESSES, "--down-rate", "0"), "0 is out of range: 1 to inf"),
        ((*ADDRESSES, "--clients", "0"), "0 is not in the range"),
        ((*ADDRESSES, "--tea"), "No such option"),
        (("127.0.0.1:0", "x" * 64 + ".invalid:9"), "no way to x"),
    ],
)
def test_a_wrong_call_ends_with_2_and_says_why(arguments: tuple[str, ...], complaint: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_a_port_in_use_ends_with_2() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = call(f"127.0.0.1:{port}", "127.0.0.1:9")
    assert result.exit_code == 2
    assert f"cannot listen on UDP 127.0.0.1:{port}" in result.stderr


def test_people_get_lines_and_a_table() -> None:
    result = call(
        *ADDRESSES, "--duration", "10ms", "--loss", "5%", "--down-rate", "1M", "--seed", "4"
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("listening on 127.0.0.1:")
    assert lines[1:3] == ["up: loss 0.05", "down: loss 0.05, rate 1000000"]
    assert lines[3].startswith("seed 4;")
    assert "queue dropped" in result.stdout
    assert lines[-1].startswith("clients at the end 0;")


def test_programs_get_json_and_a_signal_ends_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.settimeout(60)
        target.bind(("127.0.0.1", 0))
        command = [sys.executable, "-W", "error", "-c", PROGRAM, "127.0.0.1:0"]
        command += [f"127.0.0.1:{target.getsockname()[1]}", "--json", "--every", "10ms"]
        with subprocess.Popen(
            [*command, "--up-duplicate", "1"], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                listening = json.loads(process.stdout.readline())
                host, _, port = listening["address"].rpartition(":")
                target.sendto(b"hello", (host, int(port)))
                assert [target.recv(100), target.recv(100)] == [b"hello", b"hello"]
                lines = map(json.loads, process.stdout)
                progress = next(line for line in lines if line["clients"])
                process.send_signal(signal.SIGINT)
                rest = list(lines)
                code = process.wait(60)
            finally:
                process.kill()
    assert code == 0
    assert (listening["event"], listening["up"]["duplicate"]) == ("listening", 1.0)
    assert listening["up"]["rate"] is None
    assert (progress["event"], progress["clients"]) == ("progress", 1)
    assert rest[-1]["event"] == "finished"
    assert rest[-1]["up"]["offered"] == 1
    assert rest[-1]["up"]["carried"] == 2


def test_the_reference_names_every_option() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "testing-kit.md"
    text = page.read_text(encoding="utf-8")
    options = {name for it in relay.params if not getattr(it, "hidden", False) for name in it.opts}
    assert len(options) > 15
    assert not {name for name in options if name.startswith("--") and f"`{name}" not in text}
