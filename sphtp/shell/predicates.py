"""Guarded predicates: an error in a user's predicate on keys or clients counts as a refusal."""

from collections.abc import Callable
from logging import Logger, getLogger
from typing import Final, TypeVar

T = TypeVar("T")

log: Final = getLogger("sphtp.security")


def guarded(
    question: Callable[[T], bool], where: Logger, refusal: Callable[[T], str]
) -> Callable[[T], bool]:
    """Wrap a predicate so that an error means False, and is logged with the text ``refusal``."""

    def ask(subject: T) -> bool:
        try:
            return bool(question(subject))
        except Exception:
            where.exception(refusal(subject))
            return False

    return ask


def asked(name: str, question: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Wrap a predicate on keys; its errors are logged under ``sphtp.security``."""
    return guarded(question, log, lambda key: f"{name} raised; the key {key.hex()} is refused")
