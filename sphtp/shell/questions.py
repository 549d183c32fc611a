"""Questions that a program answers about keys: whoever comes must not bring it down by them."""

import logging
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger("sphtp.security")


def asked(name: str, question: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """The same question, to which an error is a no; it is logged under ``sphtp.security``."""

    def ask(key: bytes) -> bool:
        try:
            return question(key)
        except Exception:
            log.exception("%s raised; the key %s is refused", name, key.hex())
            return False

    return ask
