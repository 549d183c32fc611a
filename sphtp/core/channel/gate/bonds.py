"""Every bond of a node: found by the connection it belongs to, and by where datagrams go."""

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.opening import Origin
from sphtp.core.datagrams import Address


class Bonds:
    """Bonds by our connection id, and by the peer's at its address."""

    def __init__(self) -> None:
        self._by_id: dict[int, Bond] = {}
        self._by_way: dict[Origin, Bond] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, own: int) -> Bond | None:
        """The bond under which the peer sends to one of our connections."""
        return self._by_id.get(own)

    def towards(self, address: Address, peer: int) -> Bond | None:
        """The bond under which something leaves."""
        return self._by_way.get((address, peer))

    def is_open_to(self, key: bytes, address: Address, peer: int) -> bool:
        """Whether nothing that leaves there is sealed for somebody else.

        Connection ids are not secret, and a peer chooses its own: it could take another's.
        """
        bond = self._by_way.get((address, peer))
        return bond is None or bond.key == key

    def add(self, bond: Bond, own: int, peer: int) -> None:
        """Let a bond serve a connection, instead of the one it had."""
        if self._by_id.get(own) is not bond:
            self.remove(own)
        bond.name(own, peer)
        self._by_id[own] = bond
        if peer:
            self._by_way[bond.address, peer] = bond

    def remove(self, own: int) -> None:
        """Forget the keys of a connection."""
        bond = self._by_id.pop(own, None)
        if bond is not None and self._by_way.get((bond.address, bond.peer)) is bond:
            del self._by_way[bond.address, bond.peer]

    def move(self, bond: Bond, address: Address) -> None:
        """Send to another address from now on."""
        if self._by_way.get((bond.address, bond.peer)) is bond:
            del self._by_way[bond.address, bond.peer]
        bond.address = address
        self._by_way[address, bond.peer] = bond
