"""What was freed stays at hand: a receiver of large messages causes no page faults."""

import platform
import subprocess
import sys

SCRIPT = """
import resource, sys
from sphtp.shell.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "keep":
    keep_freed_memory()
ROUND = range(64)
for turn in range(60):
    if turn == 10:
        before = faults()
    held = [b"x" * 65_536 for _ in ROUND]
    del held
print(faults() - before)
"""


def page_faults(mode: str) -> int:
    command = [sys.executable, "-c", SCRIPT, mode]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(found.stdout)


def test_buffers_of_64_kib_cause_no_page_faults_over_and_over() -> None:
    kept, given_back = page_faults("keep"), page_faults("give back")
    if platform.libc_ver()[0] != "glibc":
        assert kept < given_back + 320, "other allocators learn nothing, and lose nothing"
        return
    assert kept < 320, "fewer than one for ten of the 3,200 buffers"
    assert given_back > 10 * max(kept, 1), "or there is nothing to keep"
