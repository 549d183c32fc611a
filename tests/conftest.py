"""How hard Hypothesis tries: `HYPOTHESIS_PROFILE=nightly` turns every property into a soak."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=60, deadline=None, print_blob=True)
settings.register_profile(
    "nightly",
    max_examples=20_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
