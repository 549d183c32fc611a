"""This library without ``async``: for a plain script, a notebook, a thread.

``with open_client(...) as client:`` and so on: the same objects, whose methods wait. Trio runs in a
thread of its own as long as anything is open. What is here has the documentation and the errors of
the names of `sphtp`; errors of closed or broken channels are Trio's. `aclose` is ``close``, and
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
