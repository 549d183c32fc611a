"""The signals that end a program. This library catches none; its commands do, with these."""

import signal
from typing import Final

ASKED: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a program to end."""

OTHERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that end a program without clean-up unless it handles them."""


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals at which a command ends.

    Signals that it was started to ignore stay ignored, such as SIGHUP under ``nohup``.
    """
    caught = (each for each in OTHERS if signal.getsignal(each) is not signal.SIG_IGN)
    return (*ASKED, *caught)
