"""The streams of a node: its sources and subscriptions, which share its socket.

The code of sources and of subscriptions is loaded when a program opens the first one: most programs
open neither, and this code is a seventh of the library.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.schema import Schema
from sphtp.core.stream.membership import membership_schema
from sphtp.core.topics import check_topic
from sphtp.errors import RefusedError, SettingsError
from sphtp.shell.channel import Channel
from sphtp.shell.encoding import Encoding
from sphtp.shell.instruments import LimitLog
from sphtp.shell.services import Service
from sphtp.shell.stream_admission import ReceiverAdmission
from sphtp.shell.stream_dispatcher import StreamDispatcher
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.core.stream.membership import Welcome
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.core.stream.subscription import SubscriptionMachine
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import Dial, Subscription, Terms
    from sphtp.shell.udp import MulticastGroup

_NOWHERE: Final = ("", 0)


class NodeStreams:
    """The sources and subscriptions of a node. ``touched`` makes the node send their output."""

    def __init__(
        self,
        udp: UdpSocket,
        entropy: Entropy,
        secrets: Secrets,
        encoding: Encoding,
        limits: LimitLog,
        types: Schema,
        settings: "StreamSettings | None" = None,
        *,
        is_sealed: bool,
    ) -> None:
        self.service = Service(membership_schema(types), self.admit, name="streams")
        self.dispatcher = StreamDispatcher(udp, limits)
        self.touched: Callable[[], None] = lambda: None
        self._reception = ReceiverAdmission(self.dispatcher)
        self._udp = udp
        self._entropy = entropy
        self._secrets = secrets
        self._encoding = encoding
        self._settings = settings
        self._is_sealed = is_sealed

    async def run(self) -> None:
        """Serve the receivers that join sources of this node, until cancelled."""
        await self._reception.run()

    def admit(self, channel: Channel) -> None:
        """Admit the channel of a receiver that is going to join a source."""
        try:
            self._reception.admit(channel)
        except trio.WouldBlock:
            channel.abort("too many receivers want to join at once")

    @asynccontextmanager
    async def open_source(
        self,
        topics: Sequence[str],
        settings: "StreamSettings | None",
        group: "MulticastGroup | None",
    ) -> "AsyncIterator[Source]":
        """Open a source of these topics for the length of the block, as ``Node.open_source``."""
        from sphtp.core.stream.settings import StreamSettings
        from sphtp.shell.hosted_streams import HostedSource, open_fan_out
        from sphtp.shell.source import Source
        from sphtp.shell.stream_history import serving_history

        self._check(topics)
        settings = settings or self._settings or StreamSettings()
        with open_fan_out(self._udp, group) as outlet:
            if most := outlet.loopback_datagram:
                settings = settings.for_loopback(most)
            hosted = HostedSource(
                self._secrets,
                settings,
                topics,
                outlet,
                self.touched,
                self.dispatcher.seals,
                is_sealed=self._is_sealed,
            )
            async with serving_history(hosted, settings, self._udp.address[0], self._secrets):
                self.dispatcher.host(hosted)
                try:
                    async with Source(hosted, self._encoding, self.touched) as source:
                        yield source
                finally:
                    self.dispatcher.unhost(hosted)
                    hosted.end()

    @asynccontextmanager
    async def subscribe(
        self,
        dial: "Dial",
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        settings: "StreamSettings | None" = None,
    ) -> "AsyncIterator[Subscription[Any]]":
        """Join a source over a channel that ``dial`` opens, for the length of the block."""
        from sphtp.core.stream.membership import Join
        from sphtp.core.stream.settings import StreamSettings
        from sphtp.shell.hosted_streams import HostedSubscription
        from sphtp.shell.subscription import Subscription, Terms, join, taking_part

        check_topic(topic)
        settings = settings or self._settings or StreamSettings()
        terms = Terms(late_join=late_join, after=after, settings=settings)
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(dial())
            with self.dispatcher.joining(channel.peer_address or _NOWHERE):
                welcome = await join(channel, Join(topic), is_sealed=self._is_sealed)
                if session not in (None, welcome.session):
                    text = f"the source of {topic!r} began anew, with session {welcome.session}"
                    raise RefusedError(text, "session")
                subscription = self._make(welcome, terms)
                hosted = HostedSubscription(
                    topic, welcome, channel, subscription, self.touched, self.dispatcher.seals
                )
                udp, secrets = self._udp, self._secrets
                interface = settings.interface or udp.address[0]
                work = taking_part(self.dispatcher, hosted, interface, udp, secrets, dial)
                await stack.enter_async_context(work)
            async with Subscription[Any](
                topic, hosted, self._encoding, is_numbered=numbered
            ) as subscribed:
                yield subscribed

    def _check(self, topics: Sequence[str]) -> None:
        if not topics or len(set(topics)) < len(topics):
            raise SettingsError(f"topics are {topics}; allowed is one or more, each once")
        for topic in map(check_topic, topics):
            self.dispatcher.check_free(topic)

    def _make(self, welcome: "Welcome", terms: "Terms") -> "SubscriptionMachine":
        from sphtp.core.stream.receiver import Receiver
        from sphtp.core.stream.subscription import SubscriptionMachine

        now, has_history = trio.current_time(), bool(welcome.history)
        settings = terms.settings.for_group() if welcome.group else terms.settings
        return SubscriptionMachine(
            settings,
            now,
            Receiver(self._entropy, settings, now, welcome.window),
            welcome.session,
            welcome.topic,
            welcome.next,
            ordered=settings.ordered,
            late_join=terms.wanted,
            after=terms.after,
            recover=settings.recover,
            has_history=has_history,
            reach=welcome.reach,
            # The socket's buffer bounds a burst: a program that computes does not empty it.
            burst=self._udp.receive_buffer,
        )
