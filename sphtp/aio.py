"""This library for asyncio: in its programs, in servers, and in the cells of a notebook.

``async with open_client(...) as client:`` and so on: the same objects, whose coroutines run on
asyncio. Trio runs in a thread of its own as long as anything is open. What is here has the
documentation and the errors of the names of `sphtp`; errors of closed or broken channels are
Trio's. ``asyncio.timeout`` bounds calls, and cancelling loses nothing. Several event loops may use
an object.
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
