"""Streams: the end of a subscription, its losses, the receivers of a source, and multicast."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.core.stream.events import EndReason as EndReason
    from sphtp.core.stream.events import LossReason as LossReason
    from sphtp.core.stream.events import StreamEnd as StreamEnd
    from sphtp.shell.hosted_source import StreamReceiver as StreamReceiver
    from sphtp.shell.multicast import MulticastGroup as MulticastGroup
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
