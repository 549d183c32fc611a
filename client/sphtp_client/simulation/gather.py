"""The end of a run: every slab hands its spheres to slab 0, which thanks when it has them all.

Slab 1 uses the link it has to slab 0, the others open one for this. The thanks are what makes it
safe to leave: from then on nobody needs anything from anybody. Whoever opened a channel closes it
first, and the other side waits for that.
"""

from collections.abc import Mapping
from typing import Final

from sphtp.errors import LocalError
from sphtp_client.simulation.peer_links import PeerLink
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import Spheres, concat, pack, unpack_untrusted

THANKS: Final = b"thanks"


async def collect(slab: Slab, sources: Mapping[int, PeerLink], table: Spheres) -> Spheres:
    """Return all spheres in order of their ids; ``sources`` are the links to all other slabs.

    Raises ``PeerLeftError``, ``RemoteError`` for spheres that make no sense, and ``LocalError``
    when some are missing or doubled.
    """
    parts = [slab.spheres]
    for link in sources.values():
        step, spheres = unpack_untrusted(await link.receive(), table)
        if step != slab.step:
            raise LocalError(f"slab {link.slab} ended at step {step}, slab 0 at step {slab.step}")
        parts.append(spheres)
    whole = concat(parts)
    if len(whole) != len(table):
        raise LocalError(f"{len(whole)} of {len(table)} spheres are left")
    for link in sources.values():
        await link.send(THANKS)
    return whole


async def deliver(slab: Slab, target: PeerLink) -> None:
    """Hand over this slab's spheres and wait for the thanks. Raises as ``collect``."""
    await target.send(pack(slab.spheres, slab.step))
    answer = await target.receive()
    if answer != THANKS:
        raise LocalError(f"slab {target.slab} answered {answer[:20]!r} to the final state")
