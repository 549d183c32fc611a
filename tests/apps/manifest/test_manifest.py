"""`sphtp manifest`: objects that Kubernetes accepts, and settings that our programs accept."""

import copy
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from click.testing import CliRunner

from sphtp.__main__ import main
from sphtp.core.secure.identity import format_key
from sphtp.security import load_secret
from sphtp_server.settings import SOURCES

VERSIONS = ("1.29", kubernetes_validate.latest_version())


def generated(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["manifest", "--image", "sphtp:1", *arguments])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    items: list[dict[str, Any]] = document["items"]
    return items


def of_kind(items: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (item for item in items if item["kind"] == kind)
    return found


def environment(item: dict[str, Any]) -> dict[str, str]:
    (container,) = item["spec"]["template"]["spec"]["containers"]
    # What Kubernetes expands.
    return {
        one["name"]: one["value"].replace("$(POD_NAME)", "sphtp-server-1")
        for one in container["env"]
        if "value" in one
    }


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["manifest", "--image", "sphtp:1", *arguments])
    assert result.exit_code == 2
    return result.output


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_object(version: str, gas_file: Path) -> None:
    items = generated("--clients", "3", "--scenario", str(gas_file))
    kinds = [item["kind"] for item in items]
    assert sorted(kinds) == [
        "ConfigMap", "Job", "NetworkPolicy", "NetworkPolicy", "Secret", "Service", "StatefulSet",
    ]  # fmt: skip
    for item in items:
        kubernetes_validate.validate(item, version, strict=True)
    wrong = copy.deepcopy(of_kind(items, "Job"))
    wrong["spec"]["completion"] = wrong["spec"].pop("completions")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_servers_start_with_what_the_pods_have() -> None:
    items = generated("--servers", "3", "--name", "deep")
    servers = of_kind(items, "StatefulSet")
    variables = environment(servers)
    settings = SOURCES.load({}, variables, None)
    assert settings.advertise == "tcp://sphtp-server-1.deep-servers:8764"
    assert settings.join[2] == "tcp://deep-server-2.deep-servers:8764"
    service = of_kind(items, "Service")
    assert servers["spec"]["serviceName"] == service["metadata"]["name"] == "deep-servers"
    assert service["spec"]["clusterIP"] == "None"
    assert servers["metadata"]["name"] == "deep-server"
    pod = servers["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (ports["pub"], ports["sub"]) == (settings.pub_port, settings.sub_port)
    assert settings.metrics == f"0.0.0.0:{ports['http']}"
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings.drain_time
    assert not settings.announce


def test_clients_start_with_what_the_pods_have() -> None:
    items = generated("--clients", "3", "--steps", "70", "--scenario", "rain")
    job = of_kind(items, "Job")
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sphtp", "client"]
    taken = {one["name"] for one in container["env"] if "valueFrom" in one}
    variables = environment(job) | dict.fromkeys(taken, "2")
    found = CliRunner().invoke(
        main, ["config", "check", "--client", "--json"], env=without_files(variables)
    )
    assert found.exit_code == 0, found.output
    settings = {name: one["value"] for name, one in json.loads(found.stdout)["settings"].items()}
    assert settings["server"] == [f"tcp://sphtp-server-{n}.sphtp-servers:8764" for n in range(2)]
    assert (settings["slab"], settings["slabs"], settings["steps"]) == (2, 3, 70)
    assert Path(settings["scenario"]).stem == "rain"
    assert "SPHTP_CLIENT_RUN" in taken


def without_files(variables: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in variables.items() if not name.endswith("_FILE")}


def test_only_a_secret_of_its_own_cannot_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "cluster.secret"
    assert CliRunner().invoke(main, ["keygen", "--secret", str(file)]).exit_code == 0
    assert of_kind(generated(), "Secret")["immutable"]
    assert not of_kind(generated("--secret-file", str(file)), "Secret")["immutable"]


def test_the_secret_is_in_one_object_only(tmp_path: Path) -> None:
    file = tmp_path / "cluster.secret"
    assert CliRunner().invoke(main, ["keygen", "--secret", str(file)]).exit_code == 0
    text = format_key(load_secret(file))
    items = generated("--secret-file", str(file))
    assert [item["kind"] for item in items if text in json.dumps(item)] == ["Secret"]
    content = of_kind(items, "Secret")["stringData"]["cluster.secret"]
    copied = tmp_path / "copied"
    copied.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
    copied.write_text(content)
    assert load_secret(copied) == load_secret(file)
    others = (generated() for _ in range(2))
    fresh = {of_kind(one, "Secret")["stringData"]["cluster.secret"] for one in others}
    assert len(fresh | {content}) == 3


def test_the_first_container_makes_keys_that_programs_accept(tmp_path: Path) -> None:
    """Kubernetes shows a secret as links to files that the group of the pod may read."""
    items = generated()
    given, keys = tmp_path / "given", tmp_path / "keys"
    for folder in (given, given / "..data", keys):
        folder.mkdir()
    for name, text in of_kind(items, "Secret")["stringData"].items():
        (given / "..data" / name).touch(mode=0o440)
        (given / "..data" / name).write_text(text)
        (given / name).symlink_to(f"..data/{name}")
    (first,) = of_kind(items, "StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    places = {mount["mountPath"]: mount["name"] for mount in first["volumeMounts"]}
    *shell, script = first["command"]
    for path, name in places.items():
        script = script.replace(path, str({"given": given, "keys": keys}[name]))
    subprocess.run([*shell, script], check=True)
    assert load_secret(keys / "cluster.secret")
    assert (keys / "metrics.token").stat().st_mode & 0o777 == 0o400


def test_policies_let_through_what_is_needed() -> None:
    items = generated()
    policies = {p["metadata"]["name"]: p["spec"] for p in items if p["kind"] == "NetworkPolicy"}
    pods = {
        "sphtp-servers": of_kind(items, "StatefulSet")["spec"]["template"]["metadata"]["labels"],
        "sphtp-clients": of_kind(items, "Job")["spec"]["template"]["metadata"]["labels"],
    }
    for name, labels in pods.items():
        assert policies[name]["podSelector"]["matchLabels"].items() <= labels.items()
        assert policies[name]["policyTypes"] == ["Ingress", "Egress"]
    (udp,) = policies["sphtp-clients"]["ingress"]
    assert udp["ports"] == [{"protocol": "UDP"}]
    tcp, http = policies["sphtp-servers"]["ingress"]
    assert [port["port"] for port in tcp["ports"]] == [8764, 8765]
    assert [port["port"] for port in http["ports"]] == [9464]


def test_settings_of_a_file_are_those_of_the_servers(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('registry = "etcd://etcd:2379,other:2380"\nexpiry = 7\ntls_mutual = false\n')
    items = generated("--config", str(file))
    settings = SOURCES.load({}, environment(of_kind(items, "StatefulSet")), None)
    assert (settings.expiry, settings.join) == (7, ())
    assert settings.registry == "etcd://etcd:2379,other:2380/sphtp"
    assert environment(of_kind(items, "Job"))["SPHTP_CLIENT_EXPIRY"] == "7.0"
    policies = [item for item in items if item["kind"] == "NetworkPolicy"]
    egress = policies[0]["spec"]["egress"]
    assert [port["port"] for port in egress[1]["ports"]] == [2379, 2380]
    file.write_text('host = "10.0.0.1"\nsecret_file = "a"\n')
    assert "host: the manifest decides on it" in refusal("--config", str(file))
    file.write_text('registry_ca = "a.pem"\n')
    assert "carries no files but the secret" in refusal("--config", str(file))


def test_a_program_of_the_user_takes_the_place_of_the_client() -> None:
    items = generated("--clients", "500", "--", "python", "worker.py", "--fast")
    job = of_kind(items, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "worker.py", "--fast"]
    assert "SPHTP_CLIENT_SERVER" in environment(job)
    assert [item["kind"] for item in generated("--clients", "0")].count("Job") == 0


def test_what_is_wrong_is_named() -> None:
    assert "--name = Gas" in refusal("--name", "Gas")
    assert "--clients" in refusal("--clients", "10000")
