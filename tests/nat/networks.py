"""Two networks behind NAT and a server between them: namespaces, veth and nftables.

The NATs are those of RFC 3489: a Linux router keeps the port of a mapping and filters by address
and port (port restricted). With random ports it is symmetric. A rule that lets everything in, or
everything from hosts to which something has left, makes it a full or an address restricted cone.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SERVER: Final = "198.51.100.10"
RELAY_USER: Final = ("sphere", "not much of a secret")
KINDS: Final = ("full cone", "address restricted", "port restricted", "symmetric")
LET_IN: Final = {
    "full cone": "iif pub udp dport 1024-65535 dnat to {inside}",
    "address restricted": "iif pub ip saddr @known udp dport 1024-65535 dnat to {inside}",
    "port restricted": "",
    "symmetric": "",
}
RULES: Final = """
flush ruleset
table ip nat {{
  set known {{ type ipv4_addr; flags dynamic,timeout; timeout 2m; }}
  chain remember {{
    type filter hook forward priority 0;
    oif pub update @known {{ ip daddr }}
  }}
  chain unasked {{
    type filter hook input priority 0;
    iif pub meta l4proto udp drop
  }}
  chain inward {{
    type nat hook prerouting priority -100;
    {let_in}
  }}
  chain outward {{
    type nat hook postrouting priority 100;
    oif pub snat to {public}{ports}
  }}
}}
"""


def run(script: str) -> None:
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True)


class Networks:
    """Made by ``open_networks``. ``left`` and ``right`` are the hosts behind NAT."""

    def __init__(self) -> None:
        self._prefix = f"nat{os.getpid()}"
        self.publics = {"left": "198.51.100.21", "right": "198.51.100.22"}
        self.insides = {"left": "192.168.1.2", "right": "192.168.2.2"}

    def entry(self, place: str) -> list[str]:
        """Return the beginning of a command in a place: left, right, server, or a router."""
        return ["ip", "netns", "exec", self._name(place)]

    def _name(self, place: str) -> str:
        return f"{self._prefix}-{place}"

    def set_kind(self, side: str, kind: str) -> None:
        """Make the NAT of a side, with no mapping."""
        rules = RULES.format(
            let_in=LET_IN[kind].format(inside=self.insides[side]),
            public=self.publics[side],
            ports=" fully-random" if kind == "symmetric" else "",
        )
        router = " ".join(self.entry(f"{side}-nat"))
        run(f"{router} nft -f - <<'END'\n{rules}\nEND\n{router} conntrack -F 2>/dev/null || true")

    def move(self, side: str, kind: str) -> None:
        """Give the NAT of a side another public address."""
        self.publics[side] = self.publics[side][:-2] + "4" + self.publics[side][-1]
        self.set_kind(side, kind)

    def set_wall(self, *, stands: bool) -> None:
        """Let nothing pass straight between the two sides, or let it pass again."""
        router, other = " ".join(self.entry("left-nat")), self.publics["right"]
        wall = f"""
            table ip wall {{
              chain forward {{
                type filter hook forward priority 10;
                ip daddr {other} drop
                ip saddr {other} drop
              }}
            }}
        """
        run(f"{router} nft -f - <<'END'\n{wall if stands else 'delete table ip wall'}\nEND")

    def lay(self) -> None:
        name = self._name
        hub, server = name("hub"), name("server")
        run(f"""
            for it in {hub} {server}; do ip netns add $it; ip -n $it link set lo up; done
            ip -n {hub} link add name br0 type bridge
            ip -n {hub} link set br0 up
            ip -n {hub} link add name s type veth peer name pub netns {server}
            ip -n {hub} link set s master br0 up
            ip -n {server} address add {SERVER}/24 dev pub
            ip -n {server} link set pub up
        """)
        for side, public in self.publics.items():
            router, host, inside = name(f"{side}-nat"), name(side), self.insides[side]
            gateway = inside[:-1] + "1"
            later = public[:-2] + "4" + public[-1]
            run(f"""
                for it in {router} {host}; do ip netns add $it; ip -n $it link set lo up; done
                ip -n {hub} link add name {side} type veth peer name pub netns {router}
                ip -n {hub} link set {side} master br0 up
                ip -n {router} address add {public}/24 dev pub
                ip -n {router} address add {later}/24 dev pub
                ip -n {router} link set pub up
                ip -n {router} link add name priv type veth peer name out netns {host}
                ip -n {router} address add {gateway}/24 dev priv
                ip -n {router} link set priv up
                ip -n {host} address add {inside}/24 dev out
                ip -n {host} link set out up
                ip -n {host} route add default via {gateway}
                ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1
            """)

    def remove(self) -> None:
        for place in ("hub", "server", "left", "right", "left-nat", "right-nat"):
            subprocess.run(["ip", "netns", "del", self._name(place)], capture_output=True)


@contextmanager
def open_networks() -> Iterator[Networks]:
    networks = Networks()
    try:
        networks.lay()
        yield networks
    finally:
        networks.remove()
