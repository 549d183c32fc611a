"""The signals that end a program. This library catches none; its commands do, with these."""

import signal
from typing import Final

ASKED: Final = (signal.SIGINT, signal.SIGTERM)
"""Somebody asks for the end."""

OTHERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""End a program that does nothing about them, and so without a good-bye."""


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals at which a command leaves.

    What it was started to ignore it goes on ignoring: ``nohup`` does that with SIGHUP.
    """
    caught = (each for each in OTHERS if signal.getsignal(each) is not signal.SIG_IGN)
    return (*ASKED, *caught)
