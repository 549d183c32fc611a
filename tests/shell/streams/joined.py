"""Who joins the sources of a test, and what each was told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from sphtp.core.stream.membership import Join, Welcome
from sphtp.shell import subscription
from sphtp.shell.channel import Channel


class Joined(NamedTuple):
    """The channel over which a receiver joined, and what its source told it."""

    channel: Channel
    welcome: Welcome


@contextmanager
def overheard() -> Iterator[list[Joined]]:
    """Those who join for the length of the block, in the order of their coming."""
    joined = list[Joined]()
    join = subscription.join  # Another one may overhear already.

    async def listening(channel: Channel, wanted: Join, *, is_sealed: bool) -> Welcome:
        welcome: Welcome = await join(channel, wanted, is_sealed=is_sealed)
        joined.append(Joined(channel, welcome))
        return welcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscription, "join", listening)
        yield joined
