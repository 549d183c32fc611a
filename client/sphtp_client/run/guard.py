"""The parent process of one program of a run, which ends all descendants of the program.

This file runs as a program of its own, and needs nothing but the standard library:

    python -I -S guard.py SIGNAL SECONDS COMMAND...

The command has a process group of its own, and /dev/null as its input. Its process id is the first
line of standard output, ``{"pid": 4711}``, before the output of the command.

When standard input closes, or at SIGTERM, the guard sends SIGNAL to the group, and after SECONDS
SIGKILL to all descendants. Standard input is a pipe whose other end the supervisor holds, so it
also closes when the supervisor is killed. When the command ends by itself, the guard ends its
remaining descendants in the same way. The guard then ends with the exit code of the command, or by
the same signal.

No descendant escapes: the guard is a subreaper, so orphans become its children, even in a process
group or session of their own. Only a descendant that has changed to another user may survive,
because kill(2) refuses the signals. If the guard itself is killed, the kernel kills the command,
and no other descendant.
"""

import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127  # the exit code of a shell for a command that it does not find
STDIN, STDOUT = 0, 1

_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Guard:
    """The process of the command, and the state of its end."""

    def __init__(self, command: list[str], stop_signal: int, grace: float) -> None:
        self._stop_signal = stop_signal
        self._grace = grace
        self._kill_at: float | None = None
        self.status: int | None = None
        """The status of the command from ``waitpid``; None before its end."""
        # This process has one thread, so code between fork and exec is safe.
        self._process = subprocess.Popen(  # noqa: S603 - it is what the user wants to run
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_introduce,  # noqa: PLW1509
        )
        self._pid = self._process.pid

    def run(self, wake: int) -> None:
        """Run until the command and all of its descendants have ended.

        A byte in the pipe ``wake`` is the number of a signal that has arrived.
        """
        waited = [STDIN, wake]
        while self._reap():
            self._end_rest()
            readable, *_ = select.select(waited, [], [], self._pause())
            if STDIN in readable and not os.read(STDIN, 65536):
                waited.remove(STDIN)
                self.stop()
            if wake in readable and signal.SIGTERM in os.read(wake, 4096):
                self.stop()

    def stop(self) -> None:
        """Send the stop signal to the group, and set the time of SIGKILL for all descendants."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, self._stop_signal)

    def _reap(self) -> bool:
        """Reap ended children; return False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self._pid:
                self.status = status
            elif pid == 0:
                return True

    def _end_rest(self) -> None:
        if self._kill_at is None:
            if self.status is not None:  # and yet there are others
                self.stop()
        elif time.monotonic() >= self._kill_at:
            # Children of killed processes become children of the guard, and die in the next round.
            for pid in _children():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _pause(self) -> float | None:
        if self._kill_at is None:
            return None
        return max(0.02, self._kill_at - time.monotonic())


def _introduce() -> None:
    """Set up the process of the command before its program is executed."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.write(STDOUT, b'{"pid": %d}\n' % os.getpid())


def _children() -> Iterator[int]:
    """Yield the process ids of the guard's children."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name of the program, in parentheses, may contain anything.
                    parent = file.read().rpartition(b")")[2].split()[1]
                if int(parent) == os.getpid():
                    yield int(name)


def end_as(status: int) -> None:
    """End this process with the exit code or signal in a status of ``waitpid``."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL cannot be set, and need not be
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    sys.exit(code)


def main(arguments: list[str]) -> None:
    """Run a command to its end, and exit as it did; with ``NOT_STARTED`` if it cannot start."""
    stop_signal, grace, *command = arguments
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        guard = Guard(command, signal.Signals[stop_signal], float(grace))
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        sys.exit(NOT_STARTED)
    guard.run(wake)
    assert guard.status is not None
    end_as(guard.status)


if __name__ == "__main__":
    main(sys.argv[1:])
