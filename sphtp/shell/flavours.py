"""The blocking and the asyncio flavour of this library's objects, derived from those for Trio.

``OPENERS`` and ``CLASSES`` list the functions and classes that have flavours. A ``Proxy`` stands
for an object for Trio, and has the same public methods and properties, which run in the portal's
thread (see ``portal``):

    member for Trio            blocking                    asyncio
    async method               method that blocks          coroutine
    method that opens a block  ``with``                    ``async with``
    iteration                  ``for``                     ``async for``
    other method, property     returns at once             returns at once

Results of a listed class are wrapped in a proxy, too, and so are the arguments with which the
library calls a function of the program. ``docs/tools/flavours.py`` writes the stubs of both
flavours for type checkers.
"""

import asyncio
import inspect
import math
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial, update_wrapper
from importlib import import_module
from operator import attrgetter
from types import FunctionType, MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, NamedTuple, Self

import trio

from sphtp.shell.portal import HeldBlock, Portal, PortalCall, acquire, release

OPENERS: Final[Mapping[str, str]] = {
    "fetch_status": "sphtp.shell.status",
    "open_channel": "sphtp.shell.node",
    "open_client": "sphtp.shell.client",
    "open_node": "sphtp.shell.node",
    "open_server": "sphtp.shell.server",
}
"""The functions with which programs begin, and their modules."""

CLASSES: Final[Mapping[str, str]] = {
    "Channel": "sphtp.shell.channel",
    "Client": "sphtp.shell.client",
    "Clock": "sphtp.shell.clock",
    "Listener": "sphtp.shell.feed",
    "LockstepGroup": "sphtp.shell.group",
    "Node": "sphtp.shell.node",
    "Receipt": "sphtp.shell.receipt",
    "Server": "sphtp.shell.server",
    "Source": "sphtp.shell.source",
    "Subscription": "sphtp.shell.subscription",
    "TopicSubscription": "sphtp.shell.topics",
}
"""The classes with async methods, and their modules."""

OF_TRIO_ONLY: Final = ("handler_nursery", "task_status")
"""The parameters that only a program on Trio can give."""

HANDLERS: Final = ("handler",)
"""The parameters that are async functions. The results of other functions are not awaited."""

TAKES_ONE: Final = ("receive", "receive_nowait", "__anext__", "accept")
TAKES_MANY: Final = ("receive_many",)
"""The methods that remove their result from the object, by one or by many items. If such a call is
cancelled after that, its result is kept for the next call."""


class _ProxyOrigin(NamedTuple):
    """The object for which a proxy stands, and the portal to its thread."""

    inner: Any
    """The object for Trio."""
    portal: Portal
    unclaimed: deque[Any]
    """The results of cancelled calls, which the next call gets."""


_origin_of: Final[Callable[["Proxy"], _ProxyOrigin]] = attrgetter("_origin")


class Proxy:
    """The base class of proxies, which use an object for Trio from another thread.

    ``Flavour.class_of`` makes their classes.
    """

    def __init__(self, inner: Any, portal: Portal) -> None:
        self._origin = _ProxyOrigin(inner, portal, deque())

    def __repr__(self) -> str:
        return repr(self._origin.inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxy) and _origin_of(other).inner is self._origin.inner

    def __hash__(self) -> int:
        return hash(self._origin.inner)


class Flavour:
    """A way of waiting for the portal: by blocking, or by asyncio."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """The members whose name differs from that of the class for Trio."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._classes = dict[type[Any], type[Proxy]]()

    @abstractmethod
    def wait(self, portal: Portal, function: Callable[[], Awaitable[Any]], kept: "Kept") -> Any:
        """Wait for a function in the portal. If the wait is cancelled, ``kept`` has the result."""

    @abstractmethod
    def block(self, portal: Portal | None, manage: "Manage") -> Any:
        """Return a block. Without a portal, the block acquires one for its length."""

    @abstractmethod
    def handle(self, portal: Portal, handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function for Trio that runs a handler, and returns its result."""

    @abstractmethod
    def special(self, cls: type[Any]) -> dict[str, Any]:
        """Return the special methods for iteration, and for ``with`` or ``async with``."""

    def find(self, name: str) -> Any:
        """Return the opener or the class of this name. Raises ``KeyError``."""
        if name in OPENERS:
            return self._opener(getattr(import_module(OPENERS[name]), name))
        return self.class_of(getattr(import_module(CLASSES[name]), name))

    def class_of(self, cls: type[Any]) -> type[Proxy]:
        """Return the class of proxies for objects of a listed class."""
        if cls not in self._classes:
            self._classes[cls] = self._make_class(cls)
        return self._classes[cls]

    def wrap(self, portal: Portal, value: Any) -> Any:
        """Return a proxy for an object of a listed class, and other values as they are.

        A view of a dict is copied.
        """
        kind = type(value)
        if CLASSES.get(kind.__name__) == kind.__module__:
            return self.class_of(kind)(value, portal)
        # A view of a dict is copied, because the dict changes in the portal's thread.
        return MappingProxyType(dict(value)) if kind is MappingProxyType else value

    def at_once(self, portal: Portal, function: Callable[[], Any]) -> Any:
        """Call a function that does not wait, in the portal's thread."""
        if portal.is_here:
            return self.wrap(portal, function())

        async def call() -> Any:
            return function()

        return self.wrap(portal, PortalCall(portal, call).outcome.result())

    def method(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method that stands for an async one."""

        def call(proxy: Proxy, *args: Any, **kwargs: Any) -> Any:
            inner, portal, unclaimed = _origin_of(proxy)
            bound = self._bind(portal, function, inner, *args, **kwargs)
            return self.wait(portal, bound, Kept.of_call(unclaimed, name, args, kwargs))

        return _dress(call, function)

    def plain_method(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method that stands for one that never waits."""

        def call(proxy: Proxy, *args: Any, **kwargs: Any) -> Any:
            inner, portal, unclaimed = _origin_of(proxy)
            kept = Kept.of_call(unclaimed, name, args, kwargs)
            if (found := kept.take()) is not NOTHING:
                return found
            return self.at_once(portal, self._bind(portal, function, inner, *args, **kwargs))

        return _dress(call, function)

    def _block_method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(proxy: Proxy, *args: Any, **kwargs: Any) -> Any:
            inner, portal, _ = _origin_of(proxy)
            bound = self._bind(portal, function, inner, *args, **kwargs)
            return self.block(portal, lambda _: bound())

        return _dress(call, function)

    def _property(self, member: property) -> property:
        def get(proxy: Proxy) -> Any:
            inner, portal, _ = _origin_of(proxy)
            return self.at_once(portal, partial(getter, inner))

        def set_to(proxy: Proxy, value: Any) -> None:
            inner, portal, _ = _origin_of(proxy)
            self.at_once(portal, partial(setter, inner, value))

        getter: Any = member.fget
        setter: Any = member.fset
        return property(get, set_to if setter else None, doc=member.__doc__)

    def _opener(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def open_block(*args: Any, **kwargs: Any) -> Any:
            inspect.signature(function).bind(*args, **kwargs)
            return self.block(None, lambda portal: self._bind(portal, function, *args, **kwargs)())

        def wait(*args: Any, **kwargs: Any) -> Any:
            def manage(portal: Portal) -> AbstractAsyncContextManager[Any]:
                return _waiting(self._bind(portal, function, *args, **kwargs))

            return self.in_block(self.block(None, manage))

        return _dress(open_block if opens_block(function) else wait, function)

    @abstractmethod
    def in_block(self, block: Any) -> Any:
        """Enter a block and leave it. Return the value that it yields."""

    def _adapt(self, portal: Portal, name: str, value: Any) -> Any:
        """Return an argument in the form for objects for Trio."""
        if isinstance(value, Proxy):
            return _origin_of(value).inner
        if name in HANDLERS and callable(value):
            return self.handle(portal, value)
        if not inspect.isroutine(value) and not isinstance(value, partial):
            return value
        return lambda *args: value(*[self.wrap(portal, each) for each in args])

    def _bind(
        self, portal: Portal, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[[], Any]:
        """Return a call of a function for Trio, with adapted arguments."""
        bound = inspect.signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in OF_TRIO_ONLY:
                raise TypeError(f"{name} is for programs on Trio")
            bound.arguments[name] = self._adapt(portal, name, value)
        return partial(function, *bound.args, **bound.kwargs)

    def _make_class(self, cls: type[Any]) -> type[Proxy]:
        members = {
            self.renamed.get(name, name): self._member(name, member)
            for name, member in public_members(cls).items()
        }
        about: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": self._module}
        # Parameters, as in Channel[Step], are for type checkers.
        about["__class_getitem__"] = classmethod(lambda own, _: own)
        return type(cls.__name__, (Proxy,), {**members, **self.special(cls), **about})

    def _member(self, name: str, member: Any) -> Any:
        if isinstance(member, property):
            return self._property(member)
        if inspect.iscoroutinefunction(member):
            return self.method(name, member)
        if opens_block(member):
            return self._block_method(member)
        return self.plain_method(name, member)


Manage = Callable[[Portal], AbstractAsyncContextManager[Any]]
"""A function that makes the block for Trio."""


@asynccontextmanager
async def _waiting(function: Callable[[], Awaitable[Any]]) -> AsyncIterator[Any]:
    """Yield the result of an opener that is no block, so that a block can acquire its portal."""
    yield await function()


NOTHING: Final = object()
"""The result of ``Kept.take`` if nothing is kept; None is a value like any other."""


class Kept:
    """The results of a method's cancelled calls, which the next call gets.

    Several threads may call at once. So a single operation on the deque takes each result.
    """

    def __init__(self, unclaimed: deque[Any] | None, limit: int | None) -> None:
        self._unclaimed = unclaimed
        self._limit = limit

    @classmethod
    def of_call(
        cls, unclaimed: deque[Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Self:
        """Return the kept results for a call of this method; most methods keep none."""
        if name in TAKES_MANY:
            limit = args[0] if args else kwargs.get("limit", len(unclaimed))
            return cls(unclaimed, limit)
        return cls(unclaimed if name in TAKES_ONE else None, None)

    def put(self, value: Any) -> None:
        """Keep the result of a cancelled call."""
        if self._unclaimed is not None:
            self._unclaimed.extend([value] if self._limit is None else value)

    def take(self) -> Any:
        """Return the kept results for this call, or ``NOTHING``."""
        if self._unclaimed is None:
            return NOTHING
        taken = list[Any]()
        with suppress(IndexError):
            while len(taken) < (1 if self._limit is None else self._limit):
                taken.append(self._unclaimed.popleft())
        if not taken:
            return NOTHING
        return taken[0] if self._limit is None else taken


def public_members(cls: type[Any]) -> dict[str, Any]:
    """Return the public methods and properties of a class, including those of its bases."""
    members = dict[str, Any]()
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if not name.startswith("_") and isinstance(member, property | FunctionType):
                members[name] = member
    # A helper of trio.abc.Channel for streams that are split.
    members.pop("send_channel", None)
    return members


def opens_block(function: Any) -> bool:
    """Return true for a function that returns an async context manager: one made by ``block``."""
    return inspect.isasyncgenfunction(inspect.unwrap(function))


def signature_without_trio(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function without the parameters that only programs on Trio use."""
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.name not in OF_TRIO_ONLY]
    return signature.replace(parameters=kept)


def _dress(call: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a method the name, the documentation and the signature of the method for Trio."""
    update_wrapper(call, function, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    vars(call).pop("__wrapped__")
    vars(call)["__signature__"] = signature_without_trio(function)
    return call


# Blocking


class _Limits(threading.local):
    """The time by which the calls of a thread have to end."""

    until: float = math.inf

    @property
    def left(self) -> float | None:
        """The seconds that remain for a call; None without a limit."""
        return None if self.until == math.inf else max(self.until - time.monotonic(), 0.0)


_limits: Final = _Limits()


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Bound the calls of `sphtp.blocking` in this thread inside the block.

    When the time is up, a call that has no result raises ``TimeoutError``. Its effect is that of a
    call that is cancelled on Trio: a message was not sent, and no received message is lost. The end
    of a block of the library then does not wait either.
    """
    before = _limits.until
    _limits.until = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _limits.until = before


class Blocking(Flavour):
    """The blocking flavour: methods block, and ``KeyboardInterrupt`` cancels the call."""

    renamed = MappingProxyType({"aclose": "close"})

    def wait(self, portal: Portal, function: Callable[[], Awaitable[Any]], kept: Kept) -> Any:
        if (found := kept.take()) is not NOTHING:
            return found
        _require_elsewhere(portal)
        call = PortalCall(portal, function)
        try:
            call.outcome.exception(_limits.left)
        except BaseException as error:
            call.cancel()
            # Its result is not lost: after a timeout it is returned, otherwise it is kept.
            if call.outcome.exception() is None:
                value = self.wrap(portal, call.outcome.result())
                if isinstance(error, TimeoutError):
                    return value
                kept.put(value)
            raise
        return self.wrap(portal, call.outcome.result())

    def block(self, portal: Portal | None, manage: Manage) -> AbstractContextManager[Any]:
        return _BlockingBlock(self, portal, manage)

    def in_block(self, block: AbstractContextManager[Any]) -> Any:
        with block as value:
            return value

    def handle(self, portal: Portal, handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        # Each handler has a thread while it runs. Trio's own limit of threads is for short calls.
        limiter = trio.CapacityLimiter(math.inf)

        async def run(*args: Any) -> Any:
            call = partial(handler, *[self.wrap(portal, each) for each in args])
            # After a cancellation the thread goes on, and its next call on the channel raises.
            return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)

        return run

    def special(self, cls: type[Any]) -> dict[str, Any]:
        methods = dict[str, Any]()
        if hasattr(cls, "__anext__"):
            receive = self.method("__anext__", cls.__anext__)

            def receive_next(proxy: Proxy) -> Any:
                try:
                    return receive(proxy)
                except StopAsyncIteration:
                    raise StopIteration from None

            methods |= {"__iter__": _itself, "__next__": receive_next}
        if hasattr(cls, "__exit__"):
            methods |= {"__enter__": _itself, "__exit__": self.plain_method("", cls.__exit__)}
        elif issubclass(cls, trio.abc.AsyncResource):
            methods |= {"__enter__": _itself, "__exit__": self.method("", cls.__aexit__)}
        return methods


class _PortalBlock:
    """A block of the library that runs in a portal: a given one, or one acquired for the block."""

    def __init__(self, flavour: Flavour, portal: Portal | None, manage: Manage) -> None:
        self._flavour = flavour
        self._portal = portal
        self._manage = manage
        self._acquired: Portal | None = None

    def _begin(self) -> None:
        portal = self._portal
        if portal is None:
            portal = self._acquired = acquire()
        self._used = portal
        self._held = HeldBlock(portal, partial(self._manage, portal))

    def _value(self) -> Any:
        """Return the value that the block yields, after it was entered."""
        return self._flavour.wrap(self._used, self._held.entered.result())

    def _release(self) -> None:
        if self._acquired is not None:
            release(self._acquired)
            self._acquired = None


class _BlockingBlock(_PortalBlock, AbstractContextManager[Any]):
    def __enter__(self) -> Any:
        if self._portal is not None:
            _require_elsewhere(self._portal)
        try:
            self._begin()
            try:
                self._held.entered.exception(_limits.left)
            except BaseException:
                self._held.call.cancel()
                self._held.call.outcome.exception()
                raise
            return self._value()
        except BaseException:
            self._release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        outcome = self._held.call.outcome
        try:
            self._held.leave((kind, error, traceback))
            try:
                outcome.exception(_limits.left)
            except BaseException as interruption:
                self._held.call.cancel()
                outcome.exception()
                if error is not None and isinstance(interruption, TimeoutError):
                    return False
                raise
            return _result_of_block(outcome, error)
        finally:
            self._release()


def _result_of_block(outcome: "Future[bool]", error: BaseException | None) -> bool:
    """Return true if the block has handled an error of its body. Raises other errors."""
    other = outcome.exception()
    if other is None:
        return outcome.result()
    if other is error:
        return False
    raise other


def _require_elsewhere(portal: Portal) -> None:
    if portal.is_here:
        raise RuntimeError(
            "a function that the library calls must not wait: it runs in the thread that would "
            "have to answer"
        )


def _itself(proxy: Proxy) -> Proxy:
    return proxy


# asyncio


class Asyncio(Flavour):
    """The flavour for asyncio: methods are coroutines, and cancelling one cancels the call."""

    def wait(self, portal: Portal, function: Callable[[], Awaitable[Any]], kept: Kept) -> Any:
        return self._wait(portal, function, kept)

    async def _wait(
        self, portal: Portal, function: Callable[[], Awaitable[Any]], kept: Kept
    ) -> Any:
        if (found := kept.take()) is not NOTHING:
            return found
        call = PortalCall(portal, function)
        try:
            await _ended(call.outcome, call)
        except asyncio.CancelledError:
            if call.outcome.exception() is None:
                kept.put(self.wrap(portal, call.outcome.result()))
            raise
        return self.wrap(portal, call.outcome.result())

    def block(self, portal: Portal | None, manage: Manage) -> AbstractAsyncContextManager[Any]:
        return _AsyncioBlock(self, portal, manage)

    async def in_block(self, block: AbstractAsyncContextManager[Any]) -> Any:
        async with block as value:
            return value

    def handle(self, portal: Portal, handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        loop = asyncio.get_running_loop()

        async def run(*args: Any) -> Any:
            ended = trio.Event()
            given = [self.wrap(portal, each) for each in args]
            task = asyncio.run_coroutine_threadsafe(handler(*given), loop)
            task.add_done_callback(lambda _: portal.run_soon(ended.set))
            try:
                await ended.wait()
            except trio.Cancelled:
                task.cancel()
                raise
            try:
                return task.result()
            except CancelledError:
                # The program cancelled the task. For the handler of a channel that is a normal end.
                # For the handler of a request there is no reply, so that the caller gets an error.
                if not any(isinstance(each, Proxy) for each in given):
                    raise
                return None

        return run

    def special(self, cls: type[Any]) -> dict[str, Any]:
        methods = dict[str, Any]()
        if hasattr(cls, "__anext__"):
            receive = self.method("__anext__", cls.__anext__)
            methods |= {"__aiter__": _itself, "__anext__": receive}
        if hasattr(cls, "__exit__"):
            methods |= {"__enter__": _itself, "__exit__": self.plain_method("", cls.__exit__)}
        elif issubclass(cls, trio.abc.AsyncResource):
            methods |= {"__aenter__": _itself_soon, "__aexit__": self.method("", cls.__aexit__)}
        return methods


async def _ended(future: "Future[Any]", call: PortalCall[Any]) -> None:
    """Wait for a future of a call. If cancelled, cancel the call, and wait for its end, too."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done() or not (cancelled is None or call.outcome.done()):
        waiter = asyncio.wrap_future(future if cancelled is None else call.outcome)
        try:
            await asyncio.wait([waiter])
        except asyncio.CancelledError as error:
            cancelled = error
            call.cancel()
        finally:
            # The caller reads the error from the future itself.
            waiter.add_done_callback(_ignore)
    if cancelled is not None:
        raise cancelled


def _ignore(waiter: "asyncio.Future[Any]") -> None:
    if not waiter.cancelled():
        waiter.exception()


class _AsyncioBlock(_PortalBlock, AbstractAsyncContextManager[Any]):
    async def __aenter__(self) -> Any:
        try:
            self._begin()
            await _ended(self._held.entered, self._held.call)
            return self._value()
        except BaseException:
            self._release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self._held.leave((kind, error, traceback))
            await _ended(self._held.call.outcome, self._held.call)
            return _result_of_block(self._held.call.outcome, error)
        finally:
            self._release()


async def _itself_soon(proxy: Proxy) -> Proxy:
    return proxy
