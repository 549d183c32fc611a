"""NewReno, as RFC 9002 section 7 has it for packets that are never sent twice."""

from sphtp.core.channel.congestion.loss_based import LossBased
from sphtp.core.channel.congestion.signals import Ack

BETA = 0.5


class NewReno(LossBased):
    """One more datagram per round trip; half of the window after a loss."""

    def __init__(self, datagram: int, limit: int) -> None:
        super().__init__(datagram, limit)
        self._acked = 0

    def sent(self, now: float, size: int, in_flight: int) -> None:
        """Change nothing: only acks and losses count."""

    def _avoid(self, now: float, ack: Ack) -> None:
        self._acked += ack.size
        if self._acked >= self.window:
            self._acked -= self.window
            self._set_window(self.window + self._datagram)

    def _shrink(self) -> None:
        self._acked = 0
        self._set_window(int(self.window * BETA))
        self._threshold = self.window
