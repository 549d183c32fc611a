"""Opening a node: its socket, its identity, and what watches it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import trio

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint, sealed_settings
from sphtp.core.channel.gate.settings import GateSettings
from sphtp.core.channel.gate.trust import OpenDoor, Trust
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.endpoint import make_endpoint
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.schema import Schema
from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.errors import SettingsError
from sphtp.shell.encoding import encoding_for
from sphtp.shell.instruments import watching
from sphtp.shell.lifetime import running
from sphtp.shell.memory import keep_freed_memory
from sphtp.shell.node import Node
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec


@asynccontextmanager
async def open_node(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    peer_id: int = 0,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    sealed: bool = True,
    identity: Identity | None = None,
    allow: Callable[[bytes], bool] | None = None,
    psk: bytes | None = None,
    gate_settings: GateSettings | None = None,
    trust: Trust | None = None,
    receive_loss: float = 0.0,
    seed: int | None = None,
    instruments: Sequence[Instrument] = (),
) -> AsyncIterator[Node]:
    """Bind a UDP socket for the length of the block; leaving it aborts the channels still open.

    Leaving takes up to ``linger`` seconds when a peer has closed a channel shortly before.

    Args:
        host, port: where to bind; port 0 takes any that is free.
        peer_id: this node's id in a cluster, 0 when it is in none.
        settings: limits and timers of its channels.
        messages: the types that all its channels carry, of ``sphtp.messages``; both sides of a
            channel need the same. By default anything that msgpack carries.
        sealed: False sends everything in the clear, to whoever does so, too.
        identity: who it is to its peers; drawn anew by default.
        allow: which public keys of peers it opens channels with, all by default.
        psk: a secret of 32 bytes that both sides need; nobody else even gets an answer.
        gate_settings: how much strangers may ask of it.
        trust: who is who, instead of ``allow``; for members of a cluster.
        receive_loss: the share of datagrams to throw away on receipt, for trying out what loss
            does.
        seed: makes random choices, that loss among them, repeatable; for tests. Keys that follow
            from a seed are no secret.
        instruments: are told what happens in it and its channels.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
        SettingsError: ``receive_loss`` is not a share, ``psk`` has another length, or something is
            given that a node in the clear has no use for.
    """
    _check(receive_loss, psk)
    if not sealed and (identity or allow or psk or gate_settings or trust):
        raise SettingsError("a node in the clear proves no identities, and checks none")
    keep_freed_memory()
    entropy = SystemRandom() if seed is None else Random(seed)
    drop = _losing(receive_loss, seed) if receive_loss else None
    settings = settings or ChannelSettings()
    with UdpSocket(host, port, drop) as udp, watching(instruments, udp.address) as watch:
        schema = Schema(messages.describe() if messages else ())
        inner = sealed_settings(settings) if sealed else settings
        plain = make_endpoint(entropy, inner, peer_id, schema, watch)
        endpoint: Endpoint | SealedEndpoint = plain
        if sealed:
            identity = identity or Identity.draw(entropy)
            trust = trust or OpenDoor(allow)
            endpoint = SealedEndpoint(plain, entropy, identity, trust, gate_settings, psk)
        node = Node(udp, endpoint, encoding_for(messages))
        try:
            async with running(node._run), running(node._callbacks.run):  # noqa: SLF001
                yield node
        finally:
            node._close()  # noqa: SLF001
            with trio.move_on_after(settings.linger) as scope:
                scope.shield = True
                await node._linger()  # noqa: SLF001


def _check(receive_loss: float, psk: bytes | None) -> None:
    if not 0 <= receive_loss < 1:
        raise SettingsError(f"receive_loss is {receive_loss}; allowed is 0 to less than 1")
    if psk is not None and len(psk) != KEY_SIZE:
        raise SettingsError(f"psk has {len(psk)} bytes; allowed is {KEY_SIZE}")


def _losing(share: float, seed: int | None) -> Callable[[], bool]:
    random = Random(seed)
    return lambda: random.random() < share
