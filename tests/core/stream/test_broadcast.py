"""A clean close on networks that lose, from seeds, in virtual time.

What holds whatever goes wrong is judged in ``tests/core/stream/invariants``.
"""

import pytest

from sphtp.core.stream.events import StreamEnd
from sphtp.core.stream.settings import StreamSettings
from sphtp.testing import Broadcast, Faults
from tests.soaked import soaked


@pytest.mark.parametrize("batch", [range(20), *soaked([range(1000)])], ids=len)
def test_a_clean_close_loses_no_tail(batch: range) -> None:
    for seed in batch:
        faults = Faults(delay=0.002, loss=0.1)
        broadcast = Broadcast(seed, 2, faults, StreamSettings())
        sent = [b"%d" % number for number in range(20)]
        for number in range(0, 20, 4):
            broadcast.send(sent[number : number + 4])
            broadcast.run(0.001)
        broadcast.close()
        broadcast.run(30)
        for subscriber in broadcast.subscribers:
            assert subscriber.payloads == sent, f"seed {seed}"
            assert isinstance(subscriber.items[-1], StreamEnd), f"seed {seed}"
