"""`sphtp status` where no server is needed: exit codes, and tables of whatever the server says."""

import io

import pytest
import trio
from click.testing import CliRunner
from rich.console import Console

from sphtp import ServerAddress
from sphtp.shell.bus_listening import ListeningPubSocket
from sphtp.shell.status import MOST_NESTED, read_untrusted
from sphtp_server.status import show, status


def unused_address() -> str:
    # Where no other test binds, so that nobody takes the port meanwhile.
    with ListeningPubSocket() as publisher:
        return publisher.listen("tcp://127.0.0.86:0")


def printed(document: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=100)
    show(document, console)
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_nobody_there_is_exit_code_4() -> None:
    address = unused_address()
    result = CliRunner().invoke(status, [address])
    assert result.exit_code == 4
    refused = f"connection refused by {address.removeprefix('tcp://')}"
    assert result.output == f"Error: no answer from {address}: {refused}\n"


def test_without_an_address_a_known_one_is_asked_or_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    async def fetch(address: ServerAddress, **_: object) -> dict[str, object]:
        await trio.lowlevel.checkpoint()
        asked.append(address)
        return {"id": 8}

    monkeypatch.setattr("sphtp_server.status.fetch_status", fetch)
    known = {"SPHTP_CLIENT_SERVER": "tcp://10.0.0.1:8764 tcp://10.0.0.2:8764"}
    for arguments, environ in (([], {}), ([], known), (["tcp://10.0.0.3:8764"], known)):
        assert CliRunner().invoke(status, arguments, env=environ).exit_code == 0
    assert [str(address) for address in asked] == [
        "tcp://127.0.0.1:8764",
        "tcp://10.0.0.1:8764",
        "tcp://10.0.0.3:8764",
    ]


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    monkeypatch.setattr("sphtp_server.status.fetch_status", interrupt)
    result = CliRunner().invoke(status, [])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["tcp://host:99999"], ["tcp://host:1", "--timeout", "0"], ["tcp://a?b:1"]],
)
def test_a_wrong_call_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(status, arguments).exit_code == 2


def test_the_exit_codes_are_in_the_help() -> None:
    text = CliRunner().invoke(status, ["--help"]).output
    assert "Exit codes: 0" in text


def test_values_lists_and_mappings_are_shown() -> None:
    text = printed(
        {
            "id": 8,
            "view": {"number": 3, "members": [8, 10]},
            "clients": [{"id": 5, "age": 1.5}, {"id": 7, "note": "late"}],
            "words": ["a", "b"],
            "nobody": [],
        }
    )
    for part in ("id", "8", "number", "members (2)", "clients (2)", "1.5", "late", "words (2)"):
        assert part in text
    assert text.endswith("nobody (0)\n")


def test_people_get_ids_in_hexadecimal_and_no_inner_workings() -> None:
    text = printed(
        {
            "id": 8,
            "clients": [{"id": 11, "revision": 77, "told_by": 99, "candidates": ["a 1", "b 2"]}],
        }
    )
    for part in ("0x00000008", "0x0000000b", "a 1, b 2"):
        assert part in text
    for part in ("revision", "77", "told_by", "99"):
        assert part not in text


def test_a_server_can_neither_style_nor_steer_the_terminal() -> None:
    text = printed({"state": "[red]up[/red]", "name": "\x1b[2J\x07"})
    assert "[red]up[/red]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a": ' + "[" * 500 + "]" * 500 + "}", "7", "{"])
def test_what_is_no_document_counts_as_not_said(text: str) -> None:
    """What must hold: a server that nests without end brings no traceback."""
    assert read_untrusted([text.encode()]) is None


@pytest.mark.parametrize("innermost", ["", "7", '"text"'])
def test_lists_and_mappings_may_be_nested_as_deep_as_the_limit(innermost: str) -> None:
    """What must hold: the values in them are no level of their own."""
    inside = MOST_NESTED - 1
    document = '{"a": ' + "[" * inside + innermost + "]" * inside + "}"
    assert read_untrusted([document.encode()]) is not None
    assert read_untrusted([document.replace("[", "[[", 1).replace("]", "]]", 1).encode()]) is None
