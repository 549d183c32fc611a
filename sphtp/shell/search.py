"""A search for one peer among those that are there, by its id or by what a function says."""

from collections.abc import Callable, Mapping

from sphtp.errors import UnreachableError
from sphtp.shell.peer import Peer

Wanted = int | Callable[[Peer], bool]


class Search:
    """Asks about each peer; an error that its data caused means that it is not the one."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._failures: dict[int, Exception] = {}

    def find(self, peers: Mapping[int, Peer]) -> Peer | None:
        """Return the one, if it is there. Raises what the function raised by itself."""
        if isinstance(self._wanted, int):
            return peers.get(self._wanted)
        self._failures.clear()
        for peer in tuple(peers.values()):
            try:
                if self._wanted(peer):
                    return peer
            except Exception as error:
                if _is_of_function(error):
                    raise
                self._failures[peer.id] = error
        return None

    def in_vain(self, seconds: float, others: int) -> UnreachableError:
        """Return the error for when time is up."""
        name = f"peer {self._wanted:#010x}" if isinstance(self._wanted, int) else "the wanted peer"
        text = f"{name} did not appear within {seconds:g} s; {others} others are here"
        if not self._failures:
            return UnreachableError(text)
        *_, last = self._failures.values()
        error = UnreachableError(
            f"{text}; the function failed on {len(self._failures)} of them, last with {last!r}"
        )
        error.__cause__ = last
        return error


def _is_of_function(error: Exception) -> bool:
    """Tell whether no data can have caused it: a misspelt name, or a call with other arguments."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Peer)
    # The first entry of the traceback is our call; a function that could be called has a second.
    was_called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return isinstance(error, NameError) or (isinstance(error, TypeError) and not was_called)
