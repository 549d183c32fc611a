"""Peer-to-peer messaging for distributed simulations.

This module has the names that most programs use. The others are in modules by subject:
`sphtp.config`, `sphtp.security`, `sphtp.streams`, `sphtp.groups`, `sphtp.messages`, `sphtp.events`,
`sphtp.observe`, `sphtp.web`, `sphtp.errors`, and `sphtp.testing`, which is for tests. The same
objects for programs that do not run on Trio are in `sphtp.blocking` and `sphtp.aio`. Modules inside
`sphtp.core` and `sphtp.shell` are not public: they may change in any version.

The module that defines a name is loaded when a program first uses the name (PEP 562). So a program
that opens a channel loads neither the message bus nor the machines of clients and servers.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The only list of names. Type checkers and editors read these imports; ``lazy_names`` below
    # reads the module of each name from the same lines.
    from sphtp import aio as aio
    from sphtp import blocking as blocking
    from sphtp import config as config
    from sphtp import errors as errors
    from sphtp import events as events
    from sphtp import groups as groups
    from sphtp import messages as messages
    from sphtp import observe as observe
    from sphtp import security as security
    from sphtp import streams as streams
    from sphtp import web as web
    from sphtp.core.channel.receipts import Outcome as Outcome
    from sphtp.core.channel.settings import Delivery as Delivery
    from sphtp.core.control.records import Peer as Peer
    from sphtp.core.control.records import ServerAddress as ServerAddress
    from sphtp.core.secure.identity import Identity as Identity
    from sphtp.core.stream.events import Loss as Loss
    from sphtp.errors import LocalError as LocalError
    from sphtp.errors import RefusedError as RefusedError
    from sphtp.errors import RemoteError as RemoteError
    from sphtp.errors import RequestError as RequestError
    from sphtp.errors import SphtpError as SphtpError
    from sphtp.errors import UnreachableError as UnreachableError
    from sphtp.shell.channel import Channel as Channel
    from sphtp.shell.client import Client as Client
    from sphtp.shell.client import open_client as open_client
    from sphtp.shell.config import Config as Config
    from sphtp.shell.node import Node as Node
    from sphtp.shell.node import open_channel as open_channel
    from sphtp.shell.node import open_node as open_node
    from sphtp.shell.receipt import Receipt as Receipt
    from sphtp.shell.requests import Request as Request
    from sphtp.shell.server import Server as Server
    from sphtp.shell.server import open_server as open_server
    from sphtp.shell.source import Source as Source
    from sphtp.shell.subscription import StreamMessage as StreamMessage
    from sphtp.shell.subscription import Subscription as Subscription
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
