"""How hard Hypothesis tries: `HYPOTHESIS_PROFILE=nightly` turns every property into a soak."""

import os

import pytest
import trio
from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=500, deadline=None, print_blob=True)
settings.register_profile(
    "nightly",
    max_examples=20_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a module's deadline win: pytest-trio marks each test nearer than ``pytestmark`` does."""
    for item in items:
        runners = [mark.kwargs.get("run", trio.run) for mark in item.iter_markers("trio")]
        chosen = next((run for run in runners if run is not trio.run), None)
        if chosen is not None:
            item.add_marker(pytest.mark.trio(run=chosen), append=False)
