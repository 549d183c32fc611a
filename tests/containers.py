"""The image of ``share/container``, as Podman builds it. Its tests are skipped without Podman.

The image stands on ``SPHTP_CONTAINER_BASE``, by default the public one.
"""

import os
import shutil
import subprocess

import pytest

from tests.house.pages import ROOT

BASE = os.environ.get("SPHTP_CONTAINER_BASE", "")
PODMAN = shutil.which("podman") or "podman"
IMAGE = "sphtp-under-test"

needs_podman = pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman")


def call(*command: str, fails: bool = False) -> str:
    """Return the standard output of a command."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def build_image() -> None:
    """Build the image, or take what Podman has of it already."""
    base = ("--build-arg", f"BASE={BASE}") if BASE else ()
    file = ROOT / "share/container/Containerfile"
    call(PODMAN, "build", "--format", "docker", *base, "-f", str(file), "-t", IMAGE, str(ROOT))
