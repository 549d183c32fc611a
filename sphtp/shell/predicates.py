"""Questions that a program answers about who comes, none of which may bring it down by that."""

from collections.abc import Callable
from logging import Logger, getLogger
from typing import Final, TypeVar

T = TypeVar("T")

log: Final = getLogger("sphtp.security")


def guarded(
    question: Callable[[T], bool], where: Logger, refusal: Callable[[T], str]
) -> Callable[[T], bool]:
    """The same question, to which an error is a no; it is logged as the ``refusal`` it means."""

    def ask(subject: T) -> bool:
        try:
            return bool(question(subject))
        except Exception:
            where.exception(refusal(subject))
            return False

    return ask


def asked(name: str, question: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """A question about keys, guarded; errors in it are logged under ``sphtp.security``."""
    return guarded(question, log, lambda key: f"{name} raised; the key {key.hex()} is refused")
