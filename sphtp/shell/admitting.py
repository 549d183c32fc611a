"""Who may register, as the application says: whatever that does, the server goes on."""

import logging
from collections.abc import Callable
from typing import Final

from sphtp.core.control.records import PeerRecord
from sphtp.shell import questions
from sphtp.shell.peer import Peer

Admit = Callable[[Peer], bool]

log: Final = logging.getLogger("sphtp.server")


def everybody(_: Peer) -> bool:
    """Admit whoever comes."""
    return True


def guarded(admit: Admit) -> Callable[[PeerRecord], bool]:
    """Ask ``admit``, and take an error of it for a no, which is logged."""
    return questions.guarded(
        lambda record: admit(Peer.from_record(record)),
        log,
        lambda record: f"admit failed for client {record.id:#010x}, which is denied",
    )
