"""Streams: ends and losses of subscriptions, receivers of sources, topics, multicast groups."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.core.stream.events import EndReason as EndReason
    from sphtp.core.stream.events import LossReason as LossReason
    from sphtp.core.stream.events import StreamEnd as StreamEnd
    from sphtp.shell.hosted_streams import StreamReceiver as StreamReceiver
    from sphtp.shell.topics import SourceEndReason as SourceEndReason
    from sphtp.shell.topics import TopicLoss as TopicLoss
    from sphtp.shell.topics import TopicMessage as TopicMessage
    from sphtp.shell.topics import TopicSource as TopicSource
    from sphtp.shell.topics import TopicSourceEnded as TopicSourceEnded
    from sphtp.shell.topics import TopicSourceFailed as TopicSourceFailed
    from sphtp.shell.topics import TopicSubscription as TopicSubscription
    from sphtp.shell.udp import MulticastGroup as MulticastGroup
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
