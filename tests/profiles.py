"""How hard Hypothesis tries.

`HYPOTHESIS_PROFILE=landing` is for a change that is to land; `nightly` turns every property into a
soak.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=30, deadline=None, print_blob=True)
settings.register_profile("landing", settings.get_profile("quick"), max_examples=100)
settings.register_profile(
    "nightly",
    settings.get_profile("quick"),
    max_examples=20_000,
    suppress_health_check=[HealthCheck.too_slow],
)

CHOSEN: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")

settings.load_profile(CHOSEN)

brisk: Final = settings(max_examples=settings.get_profile(CHOSEN).max_examples // 2)
"""For properties whose examples take ten milliseconds and more."""

few: Final = settings(max_examples=settings.get_profile(CHOSEN).max_examples // 5)
"""For properties each of whose examples does hundreds of things."""
