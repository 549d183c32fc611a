"""The objects of a cluster on Kubernetes, as documents of JSON.

- A ``StatefulSet`` runs the servers. Each keeps its host name, by which clients and other servers
  connect to it. The headless ``Service`` publishes these names, also for servers that are not
  ready, because a server has to reach the others before it admits clients.
- An indexed ``Job`` runs the clients, one for each slab; the index is the number of the slab.
- A ``Secret`` has the cluster's secret and the token for metrics. Kubernetes makes its files
  readable for the group of the pod, but programs refuse a secret that other users can read. So an
  init container copies the files into memory, readable for their user only.
- Probes request a server's ``/healthz`` and ``/readyz``.
- A ``NetworkPolicy`` for each side allows the traffic of the protocol: TCP to the servers, UDP
  among the clients, DNS, and TCP from the servers to etcd if the registry is there. Metrics are
  open to the namespace, and need the token.

The pods run without root, capabilities, a writable root file system, and a token of Kubernetes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sphtp_client.cluster.course import client_variables
from sphtp_server.registry.location import EtcdLocation
from sphtp_server.settings import SOURCES, ServerSettings

Object = dict[str, Any]

USER: Final = 10001
"""The user of the container image."""
PUB, SUB, HTTP, DNS = 8764, 8765, 9464, 53
GRACE: Final = 60
"""Seconds from the image's stop signal, SIGUSR1, to SIGKILL: a server drains for ``drain_time`` at
most, 30 by default, and then leaves."""

GIVEN: Final = "/run/given"
KEYS: Final = "/run/keys"
FILES: Final = "/etc/sphtp"
SECRET: Final = "cluster.secret"  # noqa: S105 - the name of a file
TOKEN: Final = "metrics.token"  # noqa: S105 - the name of a file
SCENARIO: Final = "scenario.toml"

INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
RUN: Final = "metadata.labels['batch.kubernetes.io/controller-uid']"

DECIDED: Final = frozenset(
    (
        "host", "pub_port", "sub_port", "advertise", "join", "new", "announce", "secret_file",
        "metrics", "metrics_token_file", "log_format", "log_file", "exit_with_stdin", "insecure",
    )
)  # fmt: skip
"""The settings of a server that the manifest determines."""


@dataclass(frozen=True)
class Manifest:
    """A cluster on Kubernetes.

    ``settings`` are the settings of the servers in a user's file, and ``variables`` the same as
    environment variables. ``client_settings`` are variables of the clients. ``scenario`` is the
    content of a scenario file that the image does not contain. It is None if the image contains the
    file, or if the clients run a program of the user. ``command`` replaces ``sphtp client``.
    """

    image: str
    servers: int
    clients: int
    secret: str = field(repr=False)
    token: str = field(repr=False)
    name: str = "sphtp"
    settings: ServerSettings = field(default_factory=ServerSettings)
    variables: Mapping[str, str] = field(default_factory=dict)
    client_settings: Mapping[str, str] = field(default_factory=dict)
    scenario: str | None = None
    command: Sequence[str] = ("sphtp", "client")
    is_new: bool = False
    """True if the secret was drawn for this manifest, which makes its object immutable."""

    def objects(self) -> Iterator[Object]:
        """Yield the objects, in the order in which to create them."""
        yield self._secret()
        yield self._service()
        yield self._policy("server", self._server_ingress(), self._server_egress())
        yield self._server_set()
        if self.clients:
            if self.scenario is not None:
                yield self._scenario(self.scenario)
            yield self._policy("client", self._client_ingress(), self._client_egress())
            yield self._job()

    # Names

    @property
    def _service_name(self) -> str:
        return f"{self.name}-servers"

    @property
    def _server_name(self) -> str:
        return f"{self.name}-server"

    @property
    def _client_name(self) -> str:
        return f"{self.name}-clients"

    @property
    def _addresses(self) -> list[str]:
        hosts = (f"{self._server_name}-{number}" for number in range(self.servers))
        return [f"tcp://{host}.{self._service_name}:{PUB}" for host in hosts]

    def _labels(self, part: str) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "sphtp",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/component": part,
        }

    def _metadata(self, name: str, part: str) -> Object:
        return {"name": name, "labels": self._labels(part)}

    # Objects

    def _secret(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._metadata(self.name, "server"),
            "type": "Opaque",
            "stringData": {SECRET: self.secret, TOKEN: self.token},
            # Running programs keep their secret: a new one would separate later programs from them.
            "immutable": self.is_new,
        }

    def _service(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(self._service_name, "server"),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": self._labels("server"),
                "ports": [
                    {"name": "pub", "port": PUB},
                    {"name": "sub", "port": SUB},
                    {"name": "http", "port": HTTP},
                ],
            },
        }

    def _server_set(self) -> Object:
        labels = self._labels("server")
        container = {
            "name": "server",
            "image": self.image,
            "command": ["sphtp", "server"],
            "env": [_from_field("POD_NAME", "metadata.name"), *_env(self._server_variables())],
            "ports": [
                {"name": "pub", "containerPort": PUB},
                {"name": "sub", "containerPort": SUB},
                {"name": "http", "containerPort": HTTP},
            ],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 2},
            **self._common(),
        }
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
        pod = self._pod(container) | {
            "terminationGracePeriodSeconds": GRACE,
            "topologySpreadConstraints": [spread],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": self._metadata(self._server_name, "server"),
            "spec": {
                "serviceName": self._service_name,
                "replicas": self.servers,
                # A server may wait for another one before it is ready.
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _job(self) -> Object:
        labels = self._labels("client")
        container = {
            "name": "client",
            "image": self.image,
            "command": list(self.command),
            "env": [
                _from_field("SPHTP_CLIENT_SLAB", INDEX),
                # Pods of an earlier job of this name do not belong to this run.
                _from_field("SPHTP_CLIENT_RUN", RUN),
                *_env(self._client_variables()),
            ],
            **self._common(),
        }
        pod = self._pod(container) | {"restartPolicy": "Never"}
        if self.scenario is not None:
            volume = {"name": "files", "configMap": {"name": f"{self.name}-scenario"}}
            pod["volumes"].append(volume)
            container["volumeMounts"].append({"name": "files", "mountPath": FILES})
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(self._client_name, "client"),
            "spec": {
                "completionMode": "Indexed",
                "completions": self.clients,
                "parallelism": self.clients,
                # The state of a lost client is gone, so a single new client could not continue.
                "backoffLimit": 0,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _scenario(self, content: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._metadata(f"{self.name}-scenario", "client"),
            "data": {SCENARIO: content},
        }

    # Variables

    def _server_variables(self) -> dict[str, str]:
        own = f"tcp://$(POD_NAME).{self._service_name}:{PUB}"
        found = {
            "host": "0.0.0.0",  # noqa: S104 - the pod's own address is not known before
            "pub_port": str(PUB),
            "sub_port": str(SUB),
            "advertise": own,
            "announce": "false",
            "secret_file": f"{KEYS}/{SECRET}",
            "metrics": f"0.0.0.0:{HTTP}",
            "metrics_token_file": f"{KEYS}/{TOKEN}",
            "log_format": "json",
        }
        # A server leaves out its own address. Servers on etcd find each other there.
        if self.servers > 1 and self.settings.registry is None:
            found["join"] = " ".join(self._addresses)
        variables = {SOURCES.variable(name): text for name, text in found.items()}
        return variables | dict(self.variables)

    def _client_variables(self) -> dict[str, str]:
        """Return the variables that ``open_client`` reads, and those of ``sphtp client``."""
        servers, settings = self._addresses, self.settings
        variables = client_variables(servers, None, settings.heartbeat, settings.expiry)
        return {
            **variables,
            "SPHTP_CLIENT_SECRET_FILE": f"{KEYS}/{SECRET}",
            "SPHTP_CLIENT_SLABS": str(self.clients),
            **({} if self.scenario is None else {"SPHTP_CLIENT_SCENARIO": f"{FILES}/{SCENARIO}"}),
            **self.client_settings,
        }

    # Pods

    def _pod(self, container: Object) -> Object:
        copy = {
            "name": "keys",
            "image": self.image,
            "command": ["sh", "-c", f"umask 077 && cp {GIVEN}/* {KEYS}/"],
            **self._common(("given", GIVEN), ("keys", KEYS)),
        }
        mode = 0o440
        return {
            "automountServiceAccountToken": False,
            # Kubernetes would set variables SPHTP_... for services of such names.
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [copy],
            "containers": [container],
            "volumes": [
                {"name": "given", "secret": {"secretName": self.name, "defaultMode": mode}},
                {"name": "keys", "emptyDir": {"medium": "Memory"}},
            ],
        }

    @staticmethod
    def _common(*mounts: tuple[str, str]) -> Object:
        return {
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                {"name": name, "mountPath": path} for name, path in mounts or (("keys", KEYS),)
            ],
        }

    # Network policies

    def _policy(self, part: str, ingress: list[Object], egress: list[Object]) -> Object:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._metadata(f"{self.name}-{part}s", part),
            "spec": {
                "podSelector": {"matchLabels": self._labels(part)},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": ingress,
                "egress": [*egress, {"ports": [_port("UDP", DNS), _port("TCP", DNS)]}],
            },
        }

    def _pods(self, part: str) -> Object:
        return {"podSelector": {"matchLabels": self._labels(part)}}

    def _server_ingress(self) -> list[Object]:
        return [
            {
                "from": [self._pods("server"), self._pods("client")],
                "ports": [_port("TCP", PUB), _port("TCP", SUB)],
            },
            {"from": [{"podSelector": {}}], "ports": [_port("TCP", HTTP)]},
        ]

    def _server_egress(self) -> list[Object]:
        found = [self._to_servers()]
        if self.settings.registry is not None:
            endpoints = EtcdLocation.parse(self.settings.registry).endpoints
            ports = sorted({port for _, port in endpoints})
            found.append({"ports": [_port("TCP", port) for port in ports]})
        return found

    def _client_ingress(self) -> list[Object]:
        return [{"from": [self._pods("client")], "ports": [{"protocol": "UDP"}]}]

    def _client_egress(self) -> list[Object]:
        return [
            self._to_servers(),
            {"to": [self._pods("client")], "ports": [{"protocol": "UDP"}]},
        ]

    def _to_servers(self) -> Object:
        return {"to": [self._pods("server")], "ports": [_port("TCP", PUB), _port("TCP", SUB)]}


def _port(protocol: str, port: int) -> Object:
    return {"protocol": protocol, "port": port}


def _env(variables: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": text} for name, text in variables.items()]


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
