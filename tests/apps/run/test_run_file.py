"""Files of runs: what they mean, and mistakes by file, key and value."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sphtp.errors import SettingsError
from sphtp_client.cluster.run_status import ProcessRole
from sphtp_client.run.board import RunBoard
from sphtp_client.run.command import run
from sphtp_client.run.rules import Restart, Rules
from sphtp_client.run.run_file import RunFile, load_run_file
from sphtp_client.run.runner import RunPlan
from sphtp_client.run.table import draw, state_of, summary

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/root", "SPHTP_CLIENT_SERVER": "tcp://not.mine"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def load(file: Path, text: str) -> RunFile:
    file.write_text(text)
    return load_run_file(file, ENVIRON)


def test_programs_of_a_kind_have_numbers_and_wait_for_all_servers(file: Path) -> None:
    run = load(
        file,
        """
        environment = { SHARED = "1", OTHER = "of all" }
        [servers]
        count = 2
        [program.worker]
        command = "sh -c 'exit 0' {name} {number}"
        count = 2
        environment = { OTHER = "of {number}" }
        [program.viewer]
        command = ["sh"]
        after = ["worker"]
        restart = "always"
        """,
    )
    first, second, viewer = run.programs
    assert [first.name, second.name, viewer.name] == ["worker-0", "worker-1", "viewer"]
    assert second.command == ("sh", "-c", "exit 0", "worker-1", "1")
    assert (second.environment["SHARED"], second.environment["OTHER"]) == ("1", "of 1")
    assert second.directory == file.parent
    servers = frozenset({"server-1", "server-2"})
    assert run.rules["worker-1"].after == servers
    assert run.rules["viewer"].after == servers | {"worker-0", "worker-1"}
    assert run.rules["server-2"].after == {"server-1"}
    assert run.rules["viewer"].restart is Restart.ALWAYS
    assert run.rules["server-1"].restart is Restart.ON_FAILURE


def test_programs_have_the_servers_the_secret_and_this_python(file: Path) -> None:
    run = load(file, '[servers]\nexpiry = 20\n[program.a]\ncommand = "sh"')
    plan = RunPlan(run, Path("/secret"))
    environment = plan.spec("a", {"server-1": "tcp://h:1,tcp://h:2"}).environment
    assert environment is not None
    found = {key: text for key, text in environment.items() if key.startswith("SPHTP_")}
    assert found == {
        "SPHTP_CLIENT_SERVER": "tcp://h:1,tcp://h:2",
        "SPHTP_CLIENT_SECRET_FILE": "/secret",
        "SPHTP_CLIENT_HEARTBEAT": "1.0",
        "SPHTP_CLIENT_EXPIRY": "20.0",
    }
    assert environment["PATH"].startswith(f"{Path(sys.executable).parent}:")
    assert environment["HOME"] == "/root"


def test_a_server_that_starts_again_has_its_ports_and_joins_the_others(file: Path) -> None:
    plan = RunPlan(load(file, "[servers]\ncount = 2"), None)

    def words(name: str, addresses: dict[str, str]) -> str:
        return " ".join(plan.spec(name, addresses).command)

    assert "--pub-port 0 --sub-port 0 --new" in words("server-1", {})
    one, two = "tcp://h:1,tcp://h:2", "tcp://h:3,tcp://h:4"
    assert f"--pub-port 0 --sub-port 0 --join {one}" in words("server-2", {"server-1": one})
    again = words("server-1", {"server-1": one, "server-2": two})
    assert f"--pub-port 1 --sub-port 2 --join {two}" in again
    alone = words("server-1", {"server-1": one})
    assert "--new" not in alone
    assert "--join" not in alone


def test_servers_that_stand_already_are_handed_on(file: Path) -> None:
    text = '[servers]\naddresses = ["tcp://h:1"]\n[program.a]\ncommand = "sh"'
    plan = RunPlan(load(file, text), None)
    environment = plan.spec("a", {}).environment or {}
    assert environment["SPHTP_CLIENT_SERVER"] == "tcp://h:1"
    assert "SPHTP_CLIENT_SECRET_FILE" not in environment
    assert [*plan.run.rules] == ["a"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = [", "is not TOML"),
        ('colour = "red"', "colour = 'red': unknown key; known are servers, environment, program"),
        ("[servers]\ncount = 'two'", "servers.count = 'two'"),
        ("[servers]\nheartbeat = 5", "servers.expiry = 10.0: "),
        ("[servers]\nsecret_file = 'none'", "servers.secret_file = "),
        ("[servers]\naddresses = ['tcp://h:x']", "servers.addresses = 'tcp://h:x'"),
        ("[servers]\naddresses = ['tcp://h:1']\ncount = 1", "with addresses, no server is started"),
        ("[program.a]", "program.a.command = nothing"),
        ("[program.a]\ncommand = []", "program.a.command = "),
        ('[program.a]\ncommand = "\'"', 'program.a.command = "\'"'),
        ("[program.a]\ncommand = 'pythn x'", "program.a.command = 'pythn': no such program"),
        ("[program.a]\ncommand = './x'", "program.a.command = './x': no such program"),
        ("[program.a]\ncommand = 'sh'\nrestart = 'maybe'", "program.a.restart = 'maybe'"),
        ("[program.a]\ncommand = 'sh'\nready_line = '('", "program.a.ready_line = '('"),
        ("[program.a]\ncommand = 'sh'\ngrace = -1", "program.a.grace = -1"),
        ("[program.a]\ncommand = 'sh'\ndirectory = 'x'", "is no directory"),
        ("[program.a]\ncommand = 'sh'\nafter = ['b']", "program.a.after = 'b': must be one of a"),
        ("[program.a]\ncommand = 'sh'\nafter = ['a']", "it would never start"),
        ("[program.'a b']\ncommand = 'sh'", "program = 'a b'"),
        ("[program.server-1]\ncommand = 'sh'", "program.server-1 = server-1: a second process"),
        (
            (
                "[program]\na = { command = 'sh', restart = 'always' }\n"
                "b = { command = 'sh', after_end = ['a'] }"
            ),
            "program.b.after_end = 'a': it never finishes",
        ),
    ],
)
def test_a_mistake_is_named_by_file_key_and_value(file: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(file, text)
    assert str(file) in str(refused.value)
    assert complaint in str(refused.value)


def test_all_mistakes_are_named_at_once_before_anything_starts(file: Path) -> None:
    file.write_text("[program.a]\ncommand = 'nope'\nafter = ['b']")
    result = CliRunner().invoke(run, [str(file)])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 2


def test_a_check_says_what_would_start(file: Path) -> None:
    file.write_text("[program.a]\ncommand = 'sh -c {name}'\ncount = 2")
    result = CliRunner().invoke(run, ["--check", str(file)])
    assert result.exit_code == 0
    assert result.output.splitlines()[:3] == [
        "server-1: sphtp server",
        "a-0: sh -c a-0",
        "a-1: sh -c a-1",
    ]


def test_the_table_has_a_word_for_each_state(file: Path) -> None:
    text = """
    servers = { count = 2 }
    [program.a]
    command = "sh"
    restart = "on-failure"
    backoff = 8
    max_restarts = 1
    [program.b]
    command = "sh"
    after_end = ["a"]
    """
    now = 0.0
    rules = Rules(load(file, text).rules)
    board = RunBoard(rules, lambda: now, {}, as_json=False)

    def states() -> list[str]:
        draw(board, now)
        return [state_of(name, board) for name in rules.states]

    def start() -> None:
        for name in rules.poll_starts(now):
            board.take(name, ProcessRole.PROGRAM)
            board.spawned(board.processes[name], 7)

    assert states() == [
        "starts now",
        "waits for server-1",
        "waits for server-1 and 1 more",
        "waits for server-1 and 2 more",
    ]
    for server in ("server-1", "server-2"):
        start()
        rules.handle_ready(server)
    start()
    assert states() == ["ready", "ready", "ready", "waits for a"]
    board.exited(board.processes["a"], 7, asked=False)
    now = 3.0
    assert states()[2] == "restarts in 5 s"
    now = 8.0
    start()
    board.note_error_line(board.processes["a"], "no licence")
    board.exited(board.processes["a"], 7, asked=False)
    assert states()[2:] == [
        "failed: exit code 7 (no licence), after 1 restart",
        "failed: it waited for a, which failed",
    ]
    assert summary(board) == "programs: 2 running, 2 failed"
    board.is_stopping = True
    assert states()[:2] == ["ending", "ending"]
    assert board.outcome(None).sentence.startswith("a failed: exit code 7 (no licence)")
