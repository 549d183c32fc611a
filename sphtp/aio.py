"""The objects of `sphtp` for asyncio: for programs, for servers, and for notebooks.

``async with open_client(...) as client:`` opens a client as on Trio, and the async methods of the
client are coroutines of asyncio. A thread runs Trio as long as any object is open. The functions
and classes here have the documentation and the errors of those in `sphtp`. The errors of closed and
broken channels are Trio's, such as ``trio.ClosedResourceError``. ``asyncio.timeout`` bounds a call,
and a cancelled call loses no message. Several event loops may use the same object.
"""

from sphtp.shell.flavours import CLASSES, OPENERS, Asyncio

_flavour = Asyncio(__name__)


def __getattr__(name: str) -> object:
    if name not in OPENERS and name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = _flavour.find(name)
    return found


__all__ = [*CLASSES, *OPENERS]  # noqa: PLE0604 - they are names


def __dir__() -> list[str]:
    return sorted(__all__)
