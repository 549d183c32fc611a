"""The objects of `sphtp` without ``async``: for plain scripts, notebooks and threads.

``with open_client(...) as client:`` opens a client, and the methods of the client block until they
have a result. A thread runs Trio as long as any object is open. The functions and classes here have
the documentation and the errors of those in `sphtp`. The errors of closed and broken channels are
Trio's, such as ``trio.ClosedResourceError``. The method ``aclose`` is called ``close`` here, and
``fail_after`` bounds calls. Any thread may use an object.
"""

from sphtp.shell.flavours import CLASSES, OPENERS, Blocking, fail_after

_flavour = Blocking(__name__)


def __getattr__(name: str) -> object:
    if name not in OPENERS and name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = _flavour.find(name)
    return found


__all__ = [*CLASSES, *OPENERS, "fail_after"]  # noqa: PLE0604 - they are names


def __dir__() -> list[str]:
    return sorted(__all__)
