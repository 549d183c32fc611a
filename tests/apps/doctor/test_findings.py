"""What facts mean: a table of broken set-ups, each with its one finding and the command."""

from dataclasses import replace

from sphtp_client.doctor.collection import members_untrusted, route_mtu, wall_offset_untrusted
from sphtp_client.doctor.facts import (
    ClusterFacts,
    Facts,
    Interface,
    MachineFacts,
    PeerFacts,
    PortFacts,
    ServerFacts,
)
from sphtp_client.doctor.findings import Level, judge
from tests.cases import each

ETHERNET = Interface(name="eth0", is_up=True, is_multicast=True)
MACHINE = MachineFacts(
    buffer_wanted=4_000_000,
    buffer_granted=4_000_000,
    descriptors_used=10,
    descriptors_limit=4096,
    descriptors_hard=8192,
    udp_error="",
    interfaces=(ETHERNET,),
    multicast_error="",
    has_zeroconf=True,
    memory_error="",
)
SERVER = ServerFacts(address="tcp://gate:8764", host="gate", port=8764, mtu=1500)
PEER = PeerFacts(label="fluid", host="10.0.0.7", port=4000, mtu=1500, datagram_size=1423)


def machine(**changes: object) -> Facts:
    return Facts(machine=replace(MACHINE, **changes))  # type: ignore[arg-type]


def server(**changes: object) -> Facts:
    servers = (replace(SERVER, **changes),)  # type: ignore[arg-type]
    return Facts(machine=MACHINE, cluster=ClusterFacts(servers=servers, clock_error=0.001))


def peer(**changes: object) -> Facts:
    peers = (replace(PEER, **changes),)  # type: ignore[arg-type]
    return Facts(machine=MACHINE, cluster=ClusterFacts(servers=(SERVER,), peers=peers))


def nothing_found(*taken: int) -> Facts:
    ports = tuple(PortFacts(port=port, is_taken=port in taken) for port in (8764, 8765))
    cluster = ClusterFacts(search_error="no server found within 3 s", ports=ports)
    return Facts(machine=MACHINE, cluster=cluster)


@each("facts", [machine(), server(), peer(), peer(mtu=65536), peer(mtu=1400)])
def test_a_sound_set_up_has_no_fault(facts: Facts) -> None:
    assert {finding.level for finding in judge(facts)} == {Level.OK}
    assert not any(finding.remedy for finding in judge(facts))


W, F = Level.WARNING, Level.FAULT
TABLE = {
    "small rmem": (
        machine(buffer_granted=212_992),
        (W, "receive buffer", "sudo sysctl -w net.core.rmem_max=4000000"),
    ),
    "full descriptors": (
        machine(descriptors_used=1000, descriptors_limit=1024),
        (F, "descriptors", "sudo prlimit --pid $$ --nofile=1024:1024"),
    ),
    "few descriptors, and more are allowed": (
        machine(descriptors_used=40, descriptors_limit=50),
        (F, "descriptors", "ulimit -n 1024"),
    ),
    "descriptors for a small cluster": (
        machine(descriptors_limit=256, descriptors_hard=512),
        (W, "descriptors", "ulimit -n 512"),
    ),
    "no UDP port": (
        machine(udp_error="Address already in use"),
        (F, "UDP ports", "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"),
    ),
    "no network": (machine(interfaces=()), (W, "multicast", "ip link show")),
    "no multicast": (
        machine(interfaces=(replace(ETHERNET, is_multicast=False),)),
        (W, "multicast", "sudo ip link set dev eth0 multicast on"),
    ),
    "multicast that cannot be joined": (
        machine(multicast_error="No buffer space available"),
        (W, "multicast", "sudo sysctl -w net.ipv4.igmp_max_memberships=100"),
    ),
    "no zeroconf": (
        machine(has_zeroconf=False),
        (W, "multicast", "pip install 'sphtp[discovery]'"),
    ),
    "no shared memory": (
        machine(memory_error="Operation not permitted"),
        (W, "shared memory", "python3 -c 'import os; os.memfd_create(\"x\")'"),
    ),
    "a secret that others can read": (
        Facts(machine=MACHINE, keys_error="/etc/s.key is open to others (mode 0644)"),
        (F, "keys", "chmod 600 /etc/s.key"),
    ),
    "no file": (
        Facts(machine=MACHINE, keys_error="cannot read /etc/s.key: No such file or directory"),
        (F, "keys", "ls -l /etc/s.key"),
    ),
    "no server": (nothing_found(), (F, "servers", "sphtp server --new")),
    "an unknown name": (
        server(name_error="Name or service not known"),
        (F, "DNS of gate", "getent hosts gate"),
    ),
    "a small MTU": (server(mtu=900), (W, "MTU to gate", "ip route get gate")),
    "a clock an hour off": (
        server(wall_offset=-3600.0),
        (F, "clock", "sudo timedatectl set-ntp true"),
    ),
    "a clock that is almost right": (server(wall_offset=2.0), None),
    "not admitted": (
        Facts(
            machine=MACHINE,
            cluster=ClusterFacts(servers=(SERVER,), registration_error="the server is full"),
        ),
        (F, "registration", "sphtp status"),
    ),
    "one-way firewall": (
        peer(error="no answer within 5 s"),
        (F, "peer fluid", "sudo iptables -I INPUT -p udp -s 10.0.0.7 -j ACCEPT"),
    ),
    "a peer on loopback": (
        peer(host="127.0.0.1", error="no answer within 5 s"),
        (F, "peer fluid", "open_client(..., host='0.0.0.0') in the peer's program"),
    ),
    "a peer without address": (
        peer(host="", error="no answer"),
        (F, "peer fluid", "sphtp peers"),
    ),
    "MTU black hole": (
        peer(datagram_size=1171),
        (W, "MTU to fluid", "sudo ip route replace 10.0.0.7 mtu 1228 dev DEVICE"),
    ),
}


@each("case", TABLE)
def test_a_broken_set_up_has_its_one_finding(case: str) -> None:
    facts, expected = TABLE[case]
    found = [it for it in judge(facts) if it.level is not Level.OK]
    assert [(it.level, it.check, it.remedy) for it in found] == (
        [] if expected is None else [expected]
    )


@each(
    ("error", "remedy"),
    [
        (
            "found a server at tcp://a:1,2 that has a secret, and this client has none",
            "sphtp doctor tcp://a:1,2 --secret-file=cluster.secret",
        ),
        (
            "found a server at tcp://a:1,2 that has another secret",
            "sphtp doctor tcp://a:1,2 --secret-file=cluster.secret",
        ),
        ("found a server at tcp://a:1,2 that has no secret", "sphtp doctor tcp://a:1,2"),
        (
            "found a server at tls+tcp://a:1,2 that wants TLS, for which this client has none",
            "sphtp doctor tls+tcp://a:1,2 --tls-ca=authority.pem",
        ),
        (
            "found 2 clusters: tcp://a:1,2, tcp://b:1,2; tcp://c:1,2; give the address",
            "sphtp doctor tcp://a:1,2",
        ),
        ("none is announced", "sphtp server --new"),
    ],
)
def test_a_server_that_was_found_and_cannot_be_used_has_a_remedy(error: str, remedy: str) -> None:
    facts = Facts(machine=MACHINE, cluster=ClusterFacts(search_error=error))
    (fault,) = [it for it in judge(facts) if it.level is Level.FAULT]
    assert fault.remedy == remedy


def test_a_port_that_another_program_has_is_named_beside_the_server_that_is_missing() -> None:
    faults = [it for it in judge(nothing_found(8765)) if it.level is Level.FAULT]
    assert [it.remedy for it in faults] == ["sphtp server --new", "sudo ss -ltnp 'sport = :8765'"]


@each(
    ("error", "remedy"),
    [
        (
            "no secret: the servers have one, and none was given here",
            "sphtp doctor tcp://gate:8764 --secret-file=cluster.secret",
        ),
        (
            "wrong secret: the servers have another one",
            "scp gate:cluster.secret cluster.secret",
        ),
        (
            "the servers have no secret, and one was given here",
            "sphtp doctor tcp://gate:8764",
        ),
        (
            "wrong server key: the server signs with A=, certified by no cluster",
            "sphtp doctor tcp://gate:8764 --server-key=KEY",
        ),
        (
            "the certificate of gate:8764 is not accepted: self-signed certificate",
            "openssl s_client -connect gate:8764 </dev/null",
        ),
        ("gate:8764 is a server's second port; name its first one", "ss -ltn 'sport = :8764'"),
        ("gate:8764 is no SphTP server: it answered b'x'", "sudo ss -ltnp 'sport = :8764'"),
        ("connection refused by gate:8764", "sphtp server --new --host=gate --pub-port=8764"),
        ("no way to gate:8764 (No route to host)", "ip route get gate"),
        ("no answer from gate:8764", "sudo iptables -I INPUT -p tcp --dport 8764 -j ACCEPT"),
        ("no answer from gate:8765", "sudo iptables -I INPUT -p tcp --dport 8765 -j ACCEPT"),
        (
            "gate:8764 accepts connections and closes them: full, or no SphTP server",
            "sphtp server --max-connections 2000",
        ),
        ("it is silent", "nc -vz gate 8764"),
    ],
)
def test_each_error_of_a_server_has_its_command(error: str, remedy: str) -> None:
    sentence = f"no answer from tcp://gate:8764 within 5 s: {error}"
    (fault,) = [it for it in judge(server(error=sentence)) if it.level is Level.FAULT]
    assert (fault.check, fault.text, fault.remedy) == ("server tcp://gate:8764", sentence, remedy)


@each("told", [None, True, "now", float("nan"), float("inf"), 10**400, [1]])
def test_a_server_that_says_no_time_is_not_believed(told: object) -> None:
    assert wall_offset_untrusted(told) is None


@each("members", [None, 7, [7], [{}], [{"address": None}], [{"address": "a:0"}]])
def test_a_view_that_names_no_servers_is_not_followed(members: object) -> None:
    assert members_untrusted({"view": {"members": members}}) == []
    assert members_untrusted({"view": members}) == []


def test_the_servers_of_a_view_are_asked_as_well() -> None:
    members = [{"address": None}, {"address": "tcp://10.0.0.1:8764"}]
    (found,) = members_untrusted({"view": {"members": members}})
    assert str(found) == "tcp://10.0.0.1:8764"


def test_a_peer_without_an_address_has_no_route() -> None:
    assert route_mtu("", 0) is None
    assert route_mtu("127.0.0.1", 9) is not None
