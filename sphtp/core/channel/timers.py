"""The names of a connection's timers."""

from sphtp.core.fsm import Name


class Timer(Name):
    """What a connection waits for."""

    RETRY = "send CONNECT again"
    HANDSHAKE = "give up opening"
    KEEPALIVE = "say something"
    IDLE = "nothing was heard for too long"
    CLOSE = "give up draining"
    LINGER = "stop answering"
