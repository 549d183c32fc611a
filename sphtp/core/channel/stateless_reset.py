"""Telling peers that a channel is not known here, so that they need not wait for its timeout."""

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.noise import RESET_SIZE, SecurityContext, encode_reset
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.rate import RateLimit, RateLimits


class StatelessReset:
    """At most ``rate`` of them a second, for nobody may collect proofs for as long as one fits.

    One address has a quarter of it, and one host half: what is made up for ids that never were must
    not keep those from being told whose channel was there before a restart. Source addresses can
    be forged, though, and who forges those of many hosts takes all of it; peers then wait for
    their timeout.
    """

    def __init__(self, lodge: SecurityContext, endpoint: Endpoint, rate: float) -> None:
        self._lodge = lodge
        self._endpoint = endpoint
        self._rate = RateLimit(rate)
        self._by_host = RateLimits[str](rate / 2)
        self._by_address = RateLimits[Address](rate / 4)

    def answer(self, now: float, address: Address, own: int, size: int) -> None:
        """Answer a datagram of ``size`` bytes for a connection that may be known here, or not.

        The proof ends the channel at whoever is shown it by us or by somebody else, so that nobody
        sees it before the channel is over. The answer is shorter than the question.
        """
        if size <= RESET_SIZE or self._endpoint.find(own) is not None:
            return
        if not self._may_answer(now, address):
            self._lodge.counters.resets_over_rate += 1
            return
        self._lodge.counters.resets_sent += 1
        self._lodge.say(Datagrams.of(address, encode_reset(own, self._lodge.proof(own))))

    def _may_answer(self, now: float, address: Address) -> bool:
        # The narrowest first: what it holds back costs the others nothing.
        return (
            self._by_address.take(now, address)
            and self._by_host.take(now, address[0])
            and self._rate.take(now)
        )
