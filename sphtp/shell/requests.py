"""Requests between peers: the served names, the handlers, and the channel of each request.

Theory of operation. Requests are a service (see ``services``): they have channels of their own,
which carry nothing else. ``RequestTable`` has the requests of both sides on each channel. The first
request to a peer opens a channel, and both sides use it until it is idle for long. If both sides
open one at once, there are two for a while: new requests take the one that the peer with the lower
id opened, and the other one closes as soon as it has no open request.

The task of a caller sends the request itself. So it waits for room like any sender, and then for
the reply. Its deadline travels with the request: the scope around the handler ends at about the
same time as the one around the call. If the call is cancelled earlier, a CANCEL follows. A handler
is a task in the nursery of ``serve``, and sends its reply itself, too. A further task of the
channel sends CANCEL, ERROR and GOODBYE, which must not wait for other tasks. The task that reads
never sends: if two peers refuse many requests of each other, each would otherwise wait for the
other to read.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import trio

from sphtp.core.channel.settings import Lane
from sphtp.core.datagrams import Address
from sphtp.core.packing import MALFORMED, pack, unpack
from sphtp.core.requests.table import (
    IDLE,
    MOST_REQUESTS,
    ChannelLost,
    Event,
    RequestArrived,
    RequestCancelled,
    RequestSettled,
    RequestStatistics,
    RequestTable,
)
from sphtp.core.requests.wire import (
    SERVICE_LINE,
    ErrorMessage,
    ErrorReason,
    ReplyMessage,
)
from sphtp.core.schema import Schema
from sphtp.core.topics import check_topic
from sphtp.errors import (
    HandlerCrashedError,
    MessageTooLargeError,
    RefusedError,
    RemoteError,
    RequestError,
    SettingsError,
    SphtpError,
    StateError,
    UnreachableError,
)
from sphtp.shell.channel import Channel
from sphtp.shell.encoding import RAW
from sphtp.shell.services import Service, Services

log = logging.getLogger("sphtp.requests")

LANES: Final = (Lane(weight=4), Lane())
"""The lanes of small and of large messages, so that a large reply holds up no small one."""

MOST_HANDLED: Final = 4096
"""The default ``limit`` of ``serve``: the most requests of all peers that it handles at once."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of all requests that are handled at once."""

MOST_FROM_PEER: Final = 2
"""The most channels that one peer may open to this client: one, and the one that replaces it."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""The errors with which a channel ends."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a peer, which the handler gets."""

    name: str
    """The name under which the handler serves."""
    value: Any
    """The value that the peer sent."""
    peer_id: int
    """The id of the peer in the cluster."""
    deadline: float
    """The time of Trio's clock at which the handler is cancelled; infinite if there is none."""


RequestHandler = Callable[[Request], Awaitable[Any]]
Locate = Callable[[int], Awaitable[Sequence[Address]]]
"""A function that returns the addresses of a peer."""


class _ServedName:
    """A served name: its handler, and the nursery of its running requests."""

    def __init__(self, handler: RequestHandler, nursery: trio.Nursery, limit: int) -> None:
        self.handler = handler
        self.nursery = nursery
        self.limit = limit
        self.running = 0


class _Waiter:
    """A caller that waits for the outcome of its request, and has a slot of its channel."""

    __slots__ = ("arrived", "outcome")

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.outcome: ReplyMessage | ErrorMessage | ChannelLost | None = None


class _Opening:
    """An attempt to open a channel to a peer, and the callers that wait for it."""

    def __init__(self) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.error: Exception | None = None


class RequestChannel:
    """A channel for requests, with the open requests of both sides."""

    def __init__(
        self,
        channel: Channel,
        opened_by: int,
        counters: RequestStatistics,
        handle: "Callable[[RequestChannel, RequestArrived], None]",
    ) -> None:
        self.channel = channel
        self.opened_by = opened_by
        self.table = RequestTable(trio.current_time(), counters, idle=IDLE)
        self.slots = trio.CapacityLimiter(MOST_REQUESTS)
        self.waiters: dict[int, _Waiter] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self._handle = handle
        self._scope = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()
        # The time at which the writing task wakes by itself.
        self._wakes_at = -inf

    @property
    def is_usable(self) -> bool:
        """True if this side may send requests on this channel."""
        return self.table.is_open

    async def run(self) -> None:
        """Read and write until the channel has ended, or neither side needs it any more."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read_untrusted()
                    nursery.cancel_scope.cancel()
        finally:
            self.table.handle_ended(trio.current_time(), "the channel to the peer ended")
            self.settle()

    def retire(self) -> None:
        """Close the channel as soon as no request is open, because both sides use another one."""
        self.table.retire()
        self.settle()

    def settle(self) -> None:
        """Pass on the outputs of the table, after any input or command."""
        while (event := self.table.poll_event()) is not None:
            self._pass_on(event)
        if self.table.is_over:
            self._scope.cancel()
        # Most requests need no work of the writing task. To wake it each time took a third of the
        # CPU time of a lone request: 800 us in place of 520, with both sides on one core.
        due = self.table.poll_timeout()
        if self.table.has_outgoing or (due is not None and due < self._wakes_at):
            self._changed.unpark_all()

    def _pass_on(self, event: Event) -> None:
        match event:
            case RequestArrived():
                self._handle(self, event)
            case RequestCancelled(number):
                if (scope := self.scopes.get(number)) is not None:
                    scope.cancel()
            case RequestSettled(number, outcome):
                waiter = self.waiters.pop(number)
                self.slots.release_on_behalf_of(waiter)
                waiter.outcome = outcome
                waiter.arrived.set()

    async def _read_untrusted(self) -> None:
        try:
            async for data in self.channel:
                self.table.handle_message_untrusted(trio.current_time(), data)
                self.settle()
        except RemoteError as error:
            self.channel.abort(f"no message of requests: {error}")
        except GONE as error:
            self.table.handle_ended(trio.current_time(), str(error))

    async def _write(self) -> None:
        with suppress(*GONE):
            while True:
                while (outgoing := self.table.poll_transmit()) is not None:
                    await self.channel.send(outgoing.data, lane=outgoing.lane)
                    self.table.handle_sent(trio.current_time(), outgoing)
                    self.settle()
                due = self.table.poll_timeout()
                self._wakes_at = inf if due is None else due
                with trio.CancelScope(deadline=self._wakes_at):
                    await self._changed.park()
                self.table.handle_timeout(trio.current_time())


class Requests:
    """The requests of one client: those that it sends, and those that it serves."""

    def __init__(
        self,
        services: Services,
        own_id: Callable[[], int],
        locate: Locate,
        label: Callable[[int], str],
    ) -> None:
        self._services = services
        self._own_id = own_id
        self._locate = locate
        # The name of a peer, if it is known, and its id, for errors.
        self._label = label
        self._encoding = services.encoding
        self._counters = RequestStatistics()
        # The schema of the program's messages is part of it: peers with other types are refused.
        schema = Schema([SERVICE_LINE, *services.schema.lines])
        self._service = Service(schema, self._admit, RAW, LANES, "requests")
        self._channels: defaultdict[int, list[RequestChannel]] = defaultdict(list)
        self._dials: dict[int, _Opening] = {}
        self._served: dict[str, _ServedName] = {}
        self._bytes = 0
        self._nursery: trio.Nursery | None = None
        self._started, self._closed = trio.Event(), trio.Event()

    @property
    def channels(self) -> int:
        """The number of open channels for requests."""
        return sum(map(len, self._channels.values()))

    @property
    def open_requests(self) -> int:
        """The number of requests of both sides without an answer."""
        tables = [one.table for those in self._channels.values() for one in those]
        return sum(table.asked + table.received for table in tables)

    def statistics(self) -> RequestStatistics:
        """Return the statistics since the start."""
        return replace(self._counters)

    async def run(self) -> None:
        """Run the channels until cancelled. Cancelling aborts the channels."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._services.add(self._service)
                self._started.set()
                try:
                    await trio.sleep_forever()
                finally:
                    # Before the nursery refuses tasks, so that no call starts a task in it.
                    self._nursery = None
        finally:
            self._closed.set()

    async def wait_started(self) -> None:
        """Wait until peers can send requests."""
        await self._started.wait()

    # The caller's side

    async def request(
        self, peer_id: int, name: str, value: Any, errors: Collection[type[RequestError]]
    ) -> Any:
        """Send a request and wait for its reply. Raises as ``Client.request``."""
        check_topic(name, "name")
        payload = self._encoding.encode(value, None)
        while True:
            channel = await self._channel_to(peer_id)
            waiter = _Waiter()
            await channel.slots.acquire_on_behalf_of(waiter)
            number = await self._send(channel, waiter, name, payload)
            if number is not None:
                break
        try:
            await waiter.arrived.wait()
        except trio.Cancelled:
            channel.table.cancel(number)
            channel.settle()
            raise
        return self._result(waiter.outcome, peer_id, name, errors)

    async def _send(
        self, channel: RequestChannel, waiter: _Waiter, name: str, payload: bytes
    ) -> int | None:
        """Send a request. Return its number; None if the channel ends or retires before that."""
        table, now = channel.table, trio.current_time()
        if not table.has_room:
            channel.slots.release_on_behalf_of(waiter)
            return None
        deadline = trio.current_effective_deadline()
        time_left = None if deadline == inf else max(deadline - now, 0.0)
        number, outgoing = table.ask(now, name, payload, time_left)
        channel.waiters[number] = waiter
        try:
            await channel.channel.send(outgoing.data, lane=outgoing.lane)
        except BaseException as error:
            # Nothing was sent.
            if table.withdraw(trio.current_time(), number):
                del channel.waiters[number]
                channel.slots.release_on_behalf_of(waiter)
                channel.settle()
            if isinstance(error, GONE):
                return None
            raise
        return number

    def _result(
        self,
        outcome: ReplyMessage | ErrorMessage | ChannelLost | None,
        peer_id: int,
        name: str,
        errors: Collection[type[RequestError]],
    ) -> Any:
        about = f"{name!r} of peer {self._label(peer_id)}"
        match outcome:
            case ReplyMessage(_, payload):
                values = self._encoding.decode_many_untrusted([payload])
                if not values:
                    raise RemoteError(f"the reply to {about} is no message of this program")
                return values[0]
            case ErrorMessage(reason=ErrorReason.APPLICATION):
                raise _error_of(outcome, errors)
            case ErrorMessage(reason=ErrorReason.CRASHED):
                raise HandlerCrashedError(f"the handler of {about} raised an error")
            case ErrorMessage(reason=reason):
                raise RefusedError(f"{about}: {_WHY[reason]}", reason.name.lower())
            case _:
                text = outcome.text if outcome is not None else ""
                raise trio.BrokenResourceError(f"no answer to {about} will come: {text}")

    async def _channel_to(self, peer_id: int) -> RequestChannel:
        """Return an open channel to a peer; open one if there is none."""
        await self.wait_started()
        while True:
            if self._nursery is None:
                raise trio.ClosedResourceError("this client is closed")
            usable = [one for one in self._channels.get(peer_id, ()) if one.is_usable]
            if usable:
                # Both sides choose the same channel.
                return min(usable, key=lambda one: one.opened_by)
            dial = self._dials.get(peer_id)
            if dial is None:
                dial = self._dials[peer_id] = _Opening()
                self._nursery.start_soon(self._open, peer_id, dial)
            await dial.changed.park()
            if dial.error is not None:
                raise _again(dial.error) from dial.error

    async def _open(self, peer_id: int, dial: _Opening) -> None:
        """Open a channel to a peer, and keep it until it ends."""
        try:
            addresses = await self._locate(peer_id)
            async with self._services.open(self._service, addresses, peer_id) as channel:
                self._end_dial(peer_id, dial)
                await self._keep(
                    RequestChannel(channel, self._own_id(), self._counters, self._take)
                )
        except (SphtpError, OSError, *GONE) as error:
            dial.error = error
        finally:
            self._end_dial(peer_id, dial)

    def _end_dial(self, peer_id: int, dial: _Opening) -> None:
        if self._dials.get(peer_id) is dial:
            del self._dials[peer_id]
        dial.changed.unpark_all()

    # The serving side

    async def serve(
        self,
        name: str,
        handler: RequestHandler,
        limit: int,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve a name until cancelled. Raises as ``Client.serve``."""
        check_topic(name, "name")
        if limit < 1:
            raise SettingsError(f"limit is {limit}; allowed is 1 or more")
        if name in self._served:
            raise StateError(f"{name!r} is served already")
        async with trio.open_nursery() as nursery:
            self._served[name] = _ServedName(handler, nursery, limit)
            try:
                task_status.started()
                await self._closed.wait()
            finally:
                del self._served[name]
            nursery.cancel_scope.cancel()
        raise trio.ClosedResourceError("this client is closed")

    def _admit(self, channel: Channel) -> None:
        if self._nursery is None:
            channel.abort("this client is closed")
        else:
            self._nursery.start_soon(self._serve_peer, channel)

    async def _serve_peer(self, channel: Channel) -> None:
        """Keep a channel that a peer opened until it ends."""
        peer_id = channel.peer_id
        accepted = [it for it in self._channels.get(peer_id, ()) if it.opened_by == peer_id]
        # The list still has channels that were aborted a moment ago.
        for former in accepted[: 1 - MOST_FROM_PEER]:
            former.channel.abort("the peer opened others")
        with suppress(*GONE):
            async with channel:
                await self._keep(RequestChannel(channel, peer_id, self._counters, self._take))

    async def _keep(self, channel: RequestChannel) -> None:
        peer_id = channel.channel.peer_id
        self._channels[peer_id].append(channel)
        # If both sides opened one at once, both use that of the lower id: see ``_channel_to``.
        usable = [one for one in self._channels[peer_id] if one.is_usable]
        first = min(one.opened_by for one in usable)
        for one in usable:
            if one.opened_by != first:
                one.retire()
        # Also if the peer opened it: callers that wait for this side's attempt may use this one.
        if (dial := self._dials.get(peer_id)) is not None:
            dial.changed.unpark_all()
        try:
            await channel.run()
        finally:
            self._channels[peer_id].remove(channel)
            if not self._channels[peer_id]:
                del self._channels[peer_id]

    def _take(self, channel: RequestChannel, arrived: RequestArrived) -> None:
        """Start the handler of a request, or refuse it."""
        served = self._served.get(arrived.name)
        if served is None:
            channel.table.fail(ErrorMessage(arrived.number, ErrorReason.UNKNOWN))
            return
        size = len(arrived.value)
        if served.running >= served.limit or self._bytes + size > MOST_BYTES:
            channel.table.fail(ErrorMessage(arrived.number, ErrorReason.BUSY))
            return
        deadline = inf if arrived.time_left is None else trio.current_time() + arrived.time_left
        channel.scopes[arrived.number] = scope = trio.CancelScope(deadline=deadline)
        served.running += 1
        self._bytes += size
        served.nursery.start_soon(self._handle, served, channel, arrived, scope)

    async def _handle(
        self,
        served: _ServedName,
        channel: RequestChannel,
        arrived: RequestArrived,
        scope: trio.CancelScope,
    ) -> None:
        """Run the handler of a request, and send the reply or an error."""
        number, name, payload, _ = arrived
        error: ErrorMessage | None = ErrorMessage(number, ErrorReason.ENDED)
        try:
            with scope:
                values = self._encoding.decode_many_untrusted([payload])
                if values:
                    peer_id = channel.channel.peer_id
                    request = Request(name, values[0], peer_id, scope.deadline)
                    reply = self._encoding.encode(await served.handler(request), None)
                    error = await self._reply(channel, number, reply)
                else:
                    error = ErrorMessage(number, ErrorReason.MALFORMED)
            if scope.cancelled_caught:
                error = ErrorMessage(number, ErrorReason.CANCELLED)
        except Exception as raised:
            error = _error_for(raised, arrived, self._label(channel.channel.peer_id))
        finally:
            served.running -= 1
            self._bytes -= len(payload)
            channel.scopes.pop(number, None)
            if error is not None:
                channel.table.fail(error)
            channel.settle()

    async def _reply(
        self, channel: RequestChannel, number: int, payload: bytes
    ) -> ErrorMessage | None:
        outgoing = channel.table.reply(number, payload)
        if outgoing is not None:
            with suppress(*GONE):
                await channel.channel.send(outgoing.data, lane=outgoing.lane)
                channel.table.handle_sent(trio.current_time(), outgoing)
        return None


_WHY: Final = {
    ErrorReason.UNKNOWN: "the peer serves no such name",
    ErrorReason.BUSY: "the peer handles as many as it may",
    ErrorReason.CANCELLED: "its handler was cancelled, or its time was up",
    ErrorReason.MALFORMED: "the value is no message of the peer's program",
    ErrorReason.ENDED: "the peer stopped serving it",
}


def _error_for(raised: Exception, arrived: RequestArrived, peer: str) -> ErrorMessage:
    """Return the ERROR for the caller of a handler that raised.

    Log any error but a ``RequestError`` whose data msgpack carries.
    """
    cause: BaseException = raised
    # A handler with a nursery of its own raises its error in a group.
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    if isinstance(cause, RequestError):
        try:
            data = b"" if cause.data is None else pack(cause.data)
        except (TypeError, OverflowError, MessageTooLargeError) as error:
            raised = error
        else:
            reason = ErrorReason.APPLICATION
            return ErrorMessage(arrived.number, reason, cause.kind, cause.text, data)
    log.error(
        "the handler of %r raised an error on a request of peer %s",
        arrived.name,
        peer,
        exc_info=raised,
    )
    return ErrorMessage(arrived.number, ErrorReason.CRASHED)


def _error_of(message: ErrorMessage, errors: Collection[type[RequestError]]) -> RequestError:
    """Return the error that a peer's handler raised, as the class of this name among ``errors``."""
    cls = next((it for it in errors if it.__name__ == message.type), RequestError)
    try:
        data = unpack(message.data) if message.data else None
    except MALFORMED:
        data = None
    # The constructor of the class may take other arguments, so it is not called.
    error = cls.__new__(cls)
    RequestError.__init__(error, message.text, data=data)
    error.kind = message.type
    return error


def _again(error: Exception) -> Exception:
    """Return a new error for one of the callers that wait for the same channel.

    It is a refusal or the closing of this client like ``error``, or else an ``UnreachableError``.
    """
    if isinstance(error, RefusedError):
        return RefusedError(str(error), error.reason)
    if isinstance(error, trio.ClosedResourceError):
        return trio.ClosedResourceError(str(error))
    return UnreachableError(str(error))
