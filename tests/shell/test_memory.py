"""What was freed stays at hand: large messages cause no page faults over and over."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from sphtp.shell.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

mode, number, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if mode == "keep":
    keep_freed_memory()
for turn in range(60):
    if turn == 10:
        before = faults()
    held = [b"x" * size for _ in range(number)]
    del held
print(faults() - before)
"""


def page_faults(mode: str, number: int, size: int) -> int:
    command = [sys.executable, "-c", SCRIPT, mode, str(number), str(size)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(found.stdout)


@pytest.mark.parametrize(
    ("number", "size"), [(64, 65_536), pytest.param(3, 16_000_000, marks=pytest.mark.soak)]
)
def test_buffers_cause_no_page_faults_over_and_over(number: int, size: int) -> None:
    kept, given_back = (page_faults(mode, number, size) for mode in ("keep", "give back"))
    if platform.libc_ver()[0] != "glibc":
        assert kept < given_back + 320, "other allocators learn nothing, and lose nothing"
        return
    assert kept < 320, "fewer than one for ten buffers of 64 KiB"
    assert given_back > 10 * max(kept, 1), "or there is nothing to keep"
