import json

from click.testing import CliRunner, Result

from sphtp_client.watch.command import watch
from tests.cases import each


def call(*options: str) -> Result:
    return CliRunner().invoke(watch, options)


@each(
    ("options", "part"),
    [
        (("--server", "nonsense"), "server address 'nonsense': allowed is"),
        (("--expiry", "1"), "expiry is 1; it must be more than twice"),
        (("--secret-file", "/nowhere"), "/nowhere"),
        (("--server-key", "no base64!"), "a key is 44 characters"),
        (("--server-key-file", "/nowhere"), "/nowhere"),
        (("--steps", "0"), "--steps"),
        (("--seconds", "0"), "--seconds"),
    ],
)
def test_a_wrong_setting_is_named_and_exits_with_2(options, part):
    found = call(*options)
    assert found.exit_code == 2
    assert part in found.stderr


def test_no_server_exits_with_3_and_says_who_was_waited_for():
    options = ("--server", "tcp://127.0.0.1:1", "--wait", "0.1")
    found = call(*options)
    assert found.exit_code == 3
    assert "failed: not registered within 0.1 s: no server answered" in found.stderr
    found = call(*options, "--json")
    assert found.exit_code == 3
    assert json.loads(found.stdout)["event"] == "failed"
