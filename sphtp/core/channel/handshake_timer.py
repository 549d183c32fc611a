"""When a flight of the handshake goes again: a probe timeout of its own (RFC 9002, section 6.2).

A flight is what one side sends until the next step of the other is heard: CONNECT alone in the
clear, and GREET, GREET with the cookie, and CONFIRM where a channel is sealed. Each starts with a
fresh timer, for an answer says that the path and the peer are there, however long it took.

Waits grow by a quarter, from 0.1 s to 0.2 s at most. That makes 27 tries in the 5 s of silence
that end an attempt: where half of the datagrams are lost each way, three of four tries come to
nothing, and all of them 0.75 ** 27 of the time, which is 0.04 %.
"""

from typing import Final

INITIAL: Final = 0.1
"""The first wait, in seconds, while nothing is known of the path: the seed's resend time."""
SHORTEST: Final = 0.05
LONGEST: Final = 0.2
GROWTH: Final = 1.25
ROUND_TRIPS: Final = 1.5
"""The first wait of a flight when the one before it was answered at the first try. Until then there
is one sample, whose deviation is half of it (RFC 6298, section 2.2)."""


class HandshakeTimer:
    """The waits of one attempt; times in seconds."""

    __slots__ = ("_sent_at", "_times", "_wait")

    def __init__(self) -> None:
        self._wait = INITIAL
        self._sent_at = 0.0
        self._times = 0

    def sent(self, now: float) -> float:
        """Note that the present flight leaves, for the first time or again.

        Return how long to wait for an answer.
        """
        if self._times:
            self._wait = min(GROWTH * self._wait, LONGEST)
        self._times += 1
        self._sent_at = now
        return self._wait

    def answered(self, now: float) -> float:
        """Note that the present flight is answered, and that the next one leaves; return as there.

        An answer to what left more than once says nothing of the round trip (Karn's algorithm).
        """
        is_sample = self._times == 1
        wait = ROUND_TRIPS * (now - self._sent_at) if is_sample else INITIAL
        self._wait = min(max(wait, SHORTEST), LONGEST)
        self._times = 0
        return self.sent(now)
