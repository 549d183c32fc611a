"""The seed of everything that is random, and how hard Hypothesis tries.

`--seed`, or the variable `SPHTP_SEED`, gives another seed than the usual one to all tests that ask
for it.
"""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from zlib import crc32

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sphtp.core.channel import connection
from tests import profiles  # noqa: F401  (loads what the properties are tried with)
from tests.deadline import within
from tests.sockets import sockets  # noqa: F401  (a fixture)

SEED = "1"

# Servers of tests announce themselves to these tests only.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="sphtp-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run have a seed of its own, and be had again."""
    usual = os.environ.get("SPHTP_SEED") or SEED
    parser.addoption("--seed", type=int, default=usual, help="of random tests; else SPHTP_SEED")


def pytest_report_header(config: pytest.Config) -> str:
    """Say what is tested, and how to have this run again."""
    return (
        f"core: {connection.__file__}\n"
        f"seed: {config.getoption('seed')} (again: --seed or SPHTP_SEED)"
    )


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run: `--seed`, else `SPHTP_SEED`, else the usual one."""
    return int(pytestconfig.getoption("seed"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin elsewhere: what another has compiled is only read."""
    report = yield
    children, worker = report.result, os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if children and all(isinstance(child, pytest.File | pytest.Directory) for child in children):
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        first = len(children) * int(worker.removeprefix("gw")) // workers
        report.result = children[first:] + children[:first]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a module's deadline win: pytest-trio marks each test nearer than ``pytestmark`` does.
    Without one a test has a minute, unless it is a soak.

    Those marked ``plain`` are left out where the core is compiled.
    Modules are dealt to the workers like cards, so that some of them compute while others wait.
    """
    if connection.__file__.endswith(".so"):
        plain = [item for item in items if item.get_closest_marker("plain")]
        items[:] = [item for item in items if not item.get_closest_marker("plain")]
        config.hook.pytest_deselected(items=plain)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (crc32(item.path.name.encode()), item.path))
        # Long ones come first, so that none of them is the last one, alone.
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    usual = within(60)
    for item in items:
        runners = [mark.kwargs.get("run", trio.run) for mark in item.iter_markers("trio")]
        chosen = next((run for run in runners if run is not trio.run), usual)
        if runners and not (chosen is usual and item.get_closest_marker("soak")):
            item.add_marker(pytest.mark.trio(run=chosen), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among syntax trees: a third of what compiling the tests takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """While the workers collect, have Hypothesis write down what it knows of letters, for all."""
    if session.config.getoption("numprocesses", None):
        _draw_a_text()
    return (yield)


@settings(max_examples=1, database=None)
@given(st.text())
def _draw_a_text(_: str) -> None: ...


def pytest_collection_finish() -> None:
    """Spare the garbage collector thousands of tests, which stay: an eighth of the suite's time.

    Let it look for garbage a tenth as often as by default: a twentieth of the time.
    """
    gc.freeze()
    gc.set_threshold(10_000)
