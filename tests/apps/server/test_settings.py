"""Settings: flags over variables over the file over defaults, and errors that say where to look."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import sphtp.web
from sphtp import Peer
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.secure.identity import Identity, format_key
from sphtp.errors import SettingsError
from sphtp.shell.keys import (
    draw_cluster_key,
    draw_server_key,
    load_public,
    save_secret,
    save_server_key,
)
from sphtp_server.check import config as configuration
from sphtp_server.command import server
from sphtp_server.settings import SOURCES, ServerSettings
from sphtp_server.sources import flag
from tests.cases import each

FIELDS = ServerSettings.model_fields

# One value per setting that is neither its default nor refused: as TOML, and as text.
SAMPLES: dict[str, tuple[str, str]] = {
    "host": ('"127.0.0.2"', "127.0.0.2"),
    "pub_port": ("1", "1"),
    "sub_port": ("2", "2"),
    "advertise": ('"tcp://example:5"', "tcp://example:5"),
    "join": ('["tcp://a:1", "tcp://b:2,7"]', "tcp://a:1 tcp://b:2,7"),
    "registry": ('"etcd://a:1,b/gas"', "etcd://a:1,b:2379/gas"),
    "registry_ca": ('"/a/ca.pem"', "/a/ca.pem"),
    "registry_cert": ('"/a/cert.pem"', "/a/cert.pem"),
    "registry_key": ('"/a/key.pem"', "/a/key.pem"),
    "registry_user": ('"gas"', "gas"),
    "registry_password_file": ('"/a/password"', "/a/password"),
    "new": ("true", "true"),
    "announce": ("false", "false"),
    "stun": ("true", "true"),
    "insecure": ("true", "true"),
    "heartbeat": ("0.5", "0.5"),
    "jitter": ("0.2", "0.2"),
    "expiry": ("20", "20"),
    "announce_deadline": ("4", "4"),
    "secret_file": ('"/a/secret"', "/a/secret"),
    "signing_key_file": ('"/a/key"', "/a/key"),
    "server_key": ('["AAAA", "BBBB"]', "AAAA BBBB"),
    "server_key_file": ('"/a/keys"', "/a/keys"),
    "tls_cert": ('"/a/cert.pem"', "/a/cert.pem"),
    "tls_key": ('"/a/key.pem"', "/a/key.pem"),
    "tls_ca": ('"/a/ca.pem"', "/a/ca.pem"),
    "tls_mutual": ("true", "true"),
    "allow_key": ('["AAAA", "BBBB"]', "AAAA BBBB"),
    "allow_file": ('"/a/keys"', "/a/keys"),
    "max_clients": ("3", "3"),
    "announces_per_second": ("7", "7"),
    "lookups_per_second": ("7", "7"),
    "stun_per_second": ("7", "7"),
    "max_answers": ("7", "7"),
    "data_per_second": ("5.0", "5.0"),
    "max_handshakes": ("9", "9"),
    "handshake_timeout": ("2.5", "2.5"),
    "max_connections": ("7", "7"),
    "seed": ("7", "7"),
    "log_level": ('"debug"', "debug"),
    "log_format": ('"json"', "json"),
    "log_interval": ("5", "5"),
    "exit_with_stdin": ("true", "true"),
    "log_file": ('"/dev/null"', "/dev/null"),
    "drain_time": ("7.5", "7.5"),
    "metrics": ('"[::1]:9464"', "[::1]:9464"),
    "metrics_token_file": ('"/a/token"', "/a/token"),
    "web": ("9480", "9480"),
    "web_token_file": ('"/a/token"', "/a/token"),
}


def load(
    flags: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
) -> ServerSettings:
    return SOURCES.load(flags or {}, environ or {}, config)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.toml"
    path.write_text(text)
    return path


@each("page", ["metrics", "web"])
@each(
    ("place", "text"),
    [
        ("0.0.0.0:9464", "-token-file"),
        ("9464x", "[HOST:]PORT"),
        (":9464", "[HOST:]PORT"),
        ("::1:9464", "in brackets"),
        ("99999", "65535"),
    ],
)
def test_a_place_for_pages_is_one_and_is_protected(page: str, place: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({page: place})
    assert text in str(caught.value)
    assert page in str(caught.value)


def test_without_the_extra_metrics_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ["prometheus_client", *sys.modules]:
        if module.partition(".")[0] == "prometheus_client":
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "sphtp.shell.web", raising=False)
    monkeypatch.delitem(vars(sphtp.web), "open_web", raising=False)
    ports = ("--pub-port", "0", "--sub-port", "0", "--no-announce")
    result = call("--new", *ports, "--metrics", "0")
    assert result.exit_code == 2
    assert "pip install 'sphtp[metrics]' brings it" in result.output


def call(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(server, arguments, env=environ)


def test_the_samples_cover_every_setting() -> None:
    assert set(SAMPLES) == set(FIELDS)


@each("name", FIELDS)
def test_every_setting_can_come_from_the_file(name: str, tmp_path: Path) -> None:
    settings = load(config=written(tmp_path, f"{name} = {SAMPLES[name][0]}"))
    assert getattr(settings, name) != getattr(ServerSettings(), name)


@each("name", FIELDS)
def test_a_variable_says_the_same_as_the_file(name: str, tmp_path: Path) -> None:
    by_file = load(config=written(tmp_path, f"{name} = {SAMPLES[name][0]}"))
    assert load(environ={f"SPHTP_SERVER_{name.upper()}": SAMPLES[name][1]}) == by_file


@each("name", FIELDS)
def test_a_flag_says_the_same_as_a_variable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ServerSettings] = []

    async def serve(settings: ServerSettings, *_: object) -> None:
        started.append(settings)

    monkeypatch.setattr("sphtp_server.command.serve", serve)
    option, text = flag(name), SAMPLES[name][1]
    boolean = FIELDS[name].annotation is bool
    option = f"--no-{name}" if text == "false" else option
    by_flag = [option] if boolean else [word for one in text.split() for word in (option, one)]
    assert call(*by_flag).exit_code == 0
    assert call(**{f"SPHTP_SERVER_{name.upper()}": text}).exit_code == 0
    assert call("--config", str(written(tmp_path, f"{name} = {SAMPLES[name][0]}"))).exit_code == 0
    assert started[0] == started[1] == started[2] != ServerSettings()


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, "pub_port = 1\nsub_port = 1\nmax_clients = 1")
    environ = {"SPHTP_SERVER_PUB_PORT": "2", "SPHTP_SERVER_SUB_PORT": "2"}
    settings = load({"pub_port": "3", "sub_port": None, "join": ()}, environ, config)
    assert (settings.pub_port, settings.sub_port, settings.max_clients) == (3, 2, 1)


def test_a_flag_can_take_back_what_a_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load({"new": False}, {"SPHTP_SERVER_NEW": "1"}).new


def test_empty_and_foreign_variables_are_nothing() -> None:
    environ = {"SPHTP_SERVER_PUB_PORT": "", "SPHTP_SERVER_SERVICE_HOST": "10.0.0.1"}
    assert load(environ=environ) == ServerSettings()


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("pub_port", "70000", "65535"),
        ("pub_port", "many", "integer"),
        ("sub_port", "-1", "0"),
        ("max_clients", "0", "1"),
        ("max_clients", "14337", "14336"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("log_format", "xml", "'console' or 'json'"),
        ("advertise", "somewhere", "allowed is host:port"),
        ("new", "perhaps", "boolean"),
        ("registry", "http://a:2379", "allowed is etcd://host:2379"),
        ("registry", "etcd://a:2379,", "is no host and port"),
        ("registry", "etcd://a:2379/gas/1", "is no name"),
    ],
)
def test_an_error_names_source_key_value_and_what_is_allowed(
    name: str, text: str, allowed: str, tmp_path: Path
) -> None:
    config = written(tmp_path, f'{name} = "{text}"')
    origins: dict[str, Callable[[], object]] = {
        f"{config}: {name}": lambda: load(config=config),
        f"environment variable SPHTP_SERVER_{name.upper()}": lambda: load(
            environ={f"SPHTP_SERVER_{name.upper()}": text}
        ),
        f"option {flag(name)}": lambda: load({name: text}),
    }
    for origin, attempt in origins.items():
        with pytest.raises(SettingsError) as caught:
            attempt()
        for part in (origin, repr(text), allowed):
            assert part in str(caught.value)


def test_every_wrong_setting_is_told_at_once() -> None:
    result = call("--pub-port", "x", "--max-clients", "y")
    assert result.exit_code == 2
    assert "--pub-port = 'x'" in result.output
    assert "--max-clients = 'y'" in result.output


def test_contradicting_settings_say_where_each_comes_from() -> None:
    with pytest.raises(SettingsError, match="expiry is 9; it must be more than twice") as caught:
        load({"heartbeat": "6"}, {"SPHTP_SERVER_EXPIRY": "9"})
    assert "heartbeat from option --heartbeat" in str(caught.value)
    assert "expiry from environment variable SPHTP_SERVER_EXPIRY" in str(caught.value)


def test_an_unknown_key_of_the_file_is_told_with_the_known_ones(tmp_path: Path) -> None:
    config = written(tmp_path, "pubport = 1")
    with pytest.raises(SettingsError, match=r"server.toml: there is no key pubport.*pub_port"):
        load(config=config)


@pytest.mark.parametrize("content", [b"pub_port = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(content: bytes, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_bytes(content)
    result = call("--config", str(config))
    assert result.exit_code == 2
    assert "server.toml" in result.output


def test_a_file_that_is_absent_is_a_wrong_call() -> None:
    result = call("--config", "/nowhere/server.toml")
    assert result.exit_code == 2
    assert "/nowhere/server.toml" in result.output


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0", "::", "example.org"])
def test_more_than_loopback_needs_the_flag_that_says_so(host: str) -> None:
    result = call("--host", host)
    assert result.exit_code == 2
    assert "--insecure" in result.output


def test_a_repeatable_setting_is_shown_as_it_was_typed() -> None:
    with pytest.raises(SettingsError, match=r"^option --join = 'a:1 nonsense': server address"):
        load({"join": ("a:1", "nonsense")})


@each(
    ("settings", "text"),
    [
        ({"registry_user": "gas"}, "only one is given"),
        ({"registry_cert": "/a/cert.pem"}, "only one of them is given"),
        ({"registry_ca": "/a/ca.pem"}, "without --registry"),
        ({"registry": "etcd://127.0.0.1:1", "registry_ca": "/a/ca.pem"}, "write tls"),
        ({"registry": "tls+etcd://a:1", "registry_ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"registry": "etcd://a:1", "join": ("tcp://b:1",)}, "not both"),
        ({"registry": "etcd://a:1", "new": True}, "give --registry or --new, not both"),
        ({"registry": "etcd://a:1", "registry_user": "gas"}, "in the clear"),
    ],
)
def test_a_registry_has_all_that_it_needs_and_no_more(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        load(settings).store()


def test_a_registry_without_its_extra_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = str(written(tmp_path, 'registry = "etcd://127.0.0.1:1"\npub_port = 0\nannounce = false'))
    assert CliRunner().invoke(configuration, ["check", file]).exit_code == 0
    monkeypatch.setitem(sys.modules, "h11", None)
    monkeypatch.delitem(sys.modules, "sphtp_server.registry.gateway", raising=False)
    for result in (call("--config", file), CliRunner().invoke(configuration, ["check", file])):
        assert result.exit_code == 2
        assert "pip install 'sphtp[etcd]' brings it" in result.output


def test_the_check_refuses_what_a_server_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, other, certificate = (tmp_path / name for name in ("own", "other", "certificate"))
    save_server_key(own, draw_server_key())
    save_server_key(other, draw_server_key())
    certificate.write_text("-----BEGIN CERTIFICATE-----")
    certificate.chmod(0o600)
    tls = f'tls_cert = "{certificate}"\ntls_key = "{certificate}"'
    keys = f'signing_key_file = "{own}"\nserver_key = ["{format_key(load_public(other))}"]'
    monkeypatch.setitem(sys.modules, "aioice", None)
    monkeypatch.delitem(sys.modules, "sphtp.shell.nat", raising=False)
    for text, why in (
        (keys, "other servers would drop its messages"),
        ('join = ["tcp://127.0.0.1:8764"]', "that is this server itself"),
        (f'{tls}\njoin = ["tcp://127.0.0.1:1"]', "is no tls+tcp:// address"),
        (tls, "cannot be used"),
        ("stun = true", "pip install 'sphtp[nat]'"),
    ):
        file = str(written(tmp_path, text))
        for result in (call("--config", file), CliRunner().invoke(configuration, ["check", file])):
            assert result.exit_code == 2, text
            assert why in " ".join(result.output.split()), text


@pytest.mark.parametrize(
    "place",
    [
        "etcd://root:hidden@a:1",
        "etcd://a:1,root:hid/den@b:1/gas",
        "tls+etcd://root:hid@den@a",
        "http://root:hidden@a",
        "root:hidden@a:1",
    ],
)
def test_a_password_in_the_address_of_a_registry_is_refused_and_never_repeated(
    place: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f'registry = "{place}"')
    check = CliRunner().invoke(configuration, ["check", str(file)])
    for result in (call("--registry", place), call(SPHTP_SERVER_REGISTRY=place), check):
        assert result.exit_code == 2
        assert "--registry-password-file" in result.output
        assert "hid" not in result.output
        assert "den" not in result.output


@pytest.mark.parametrize(
    "line",
    [
        'registry = ["etcd://root:hidden@a:1"]',
        'registry = {place = "etcd://root:hidden@a:1", password = "hidden"}',
        'registry = [["etcd://root:hidden@a:1"], {"root:hidden@a" = 1}]',
        'join = ["tcp://root:hidden@a:1"]',
        'join = "tcp://root:hidden@a:1"',
        'join = [{address = "tcp://root:hidden@a:1"}]',
    ],
)
def test_a_password_in_a_value_of_another_type_is_not_repeated_either(
    line: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(configuration, ["check", str(written(tmp_path, line))])
    assert result.exit_code == 2
    assert "hidden" not in result.output


def test_ipv6_may_have_the_brackets_that_it_has_in_addresses() -> None:
    settings = load({"host": "[::1]"})
    assert (settings.host, str(settings.bind())) == ("::1", "tcp://[::1]:8764")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_no_flag(host: str) -> None:
    assert load({"host": host}).host == host


def test_all_addresses_of_a_machine_are_nowhere_to_be_reached_at() -> None:
    with pytest.raises(SettingsError, match="--advertise"):
        load({"host": "0.0.0.0", "insecure": True})
    settings = load({"host": "0.0.0.0", "insecure": True, "advertise": "tcp://example:8764"})
    assert settings.advertise == "tcp://example:8764"


@each(
    ("ports", "expected"),
    [
        ({}, (8764, 8765)),
        ({"pub_port": "9000"}, (9000, 9001)),
        ({"pub_port": "0"}, (0, 0)),
        ({"pub_port": "9000", "sub_port": "0"}, (9000, 0)),
        ({"sub_port": "7"}, (8764, 7)),
    ],
)
def test_the_second_port_is_the_next_one_unless_told(
    ports: dict[str, str], expected: tuple[int, int]
) -> None:
    pub, sub = (f"tcp://127.0.0.1:{port}" for port in expected)
    assert load(ports).bind() == ServerAddress(pub, sub)


def test_after_the_last_port_there_is_none() -> None:
    with pytest.raises(SettingsError, match="pub_port from option --pub-port"):
        load({"pub_port": "65535"})
    assert load({"pub_port": "65535", "sub_port": "1"}).pub_port == 65535


def test_settings_become_a_config_of_the_library() -> None:
    settings = load(
        {"host": "::1", "join": ("tcp://a:1",), "expiry": "20", "max_clients": "5", "seed": "1"}
    )
    assert settings.bind() == ServerAddress("tcp://[::1]:8764", "tcp://[::1]:8765")
    assert settings.join == ("tcp://a:1",)
    config = settings.config()
    assert config.timers == ControlTimers(expiry=20)
    assert (config.server_limits, config.seed) == (ServerLimits(max_clients=5), 1)


def test_the_help_tells_every_flag_and_variable() -> None:
    text = call("--help").output.replace("\n", " ")
    for name in FIELDS:
        assert flag(name) in text
        assert f"SPHTP_SERVER_{name.upper()}" in text


def test_more_than_loopback_is_fine_with_a_secret_or_a_certificate(tmp_path: Path) -> None:
    assert load({"host": "192.0.2.1", "secret_file": "/a/secret"}).host == "192.0.2.1"
    settings = load({"host": "192.0.2.1", "tls_cert": "/a/cert"})
    assert settings.bind().pub == "tls+tcp://192.0.2.1:8764"


def test_without_a_key_a_server_among_others_trusts_them_to_be_no_servers() -> None:
    secret, key = {"secret_file": "/a/secret"}, {"signing_key_file": "/a/key"}
    assert load({"host": "192.0.2.1", **secret}).makes_servers_of_members
    assert not load({"host": "192.0.2.1", **secret, **key}).makes_servers_of_members
    assert not load(secret).makes_servers_of_members


def test_the_files_become_a_config(tmp_path: Path) -> None:
    secret, members, signing = (tmp_path / name for name in ("secret", "members", "signing"))
    save_secret(secret, bytes(32))
    save_server_key(signing, draw_server_key(authority := draw_cluster_key()))
    keys = [Identity(bytes([n]) * 32).public for n in (1, 2, 3)]
    members.write_text(format_key(keys[1]) + "\n")
    settings = load(
        {
            "secret_file": str(secret),
            "signing_key_file": str(signing),
            "server_key": (format_key(authority.public),),
            "server_key_file": str(members),
            "allow_key": (format_key(keys[0]),),
            "allow_file": str(members),
            "announces_per_second": "7",
            "lookups_per_second": "9",
        }
    )
    config = settings.config()
    cluster, admit = config.cluster, settings.admit()
    assert cluster.secret == bytes(32)
    assert cluster.signing_key is not None
    assert cluster.signing_key.certificate == authority.certify(cluster.signing_key.public)
    assert set(cluster.server_keys) == {authority.public, keys[1]}
    assert [admit(Peer(7, b"", (), 5, key=key)) for key in keys] == [True, True, False]
    limits = ServerLimits(announces_per_second=7, lookups_per_second=9)
    assert config.server_limits == limits
    assert load().admit()(Peer(7, b"", (), 5))


@each(
    "flags",
    [
        ("--secret-file", "/nowhere/file"),
        ("--signing-key-file", "/nowhere/file"),
        ("--server-key-file", "/nowhere/file"),
        ("--server-key", "nonsense"),
        ("--server-key", format_key(bytes(32))),
        ("--allow-file", "/nowhere/file"),
        ("--allow-key", "nonsense"),
        ("--tls-cert", "/nowhere/file"),
        ("--tls-mutual",),
        ("--tls-cert", "/nowhere/file", "--tls-key", "/nowhere/file"),
        ("--join", "tls+tcp://127.0.0.1:1"),
    ],
)
def test_files_that_cannot_be_used_are_a_wrong_call(flags: tuple[str, ...]) -> None:
    result = call("--pub-port", "0", "--sub-port", "0", *flags)
    assert result.exit_code == 2
    assert "Error: " in result.output
    assert "Traceback" not in result.output
