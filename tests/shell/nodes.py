"""Nodes of tests: each takes leave of its channels within a twentieth of a second, not a second."""

from functools import partial
from typing import Final

from sphtp.core.channel.settings import ChannelSettings
from sphtp.shell import node

BRIEFLY: Final = ChannelSettings(linger=0.05)

open_node = partial(node.open_node, settings=BRIEFLY)
