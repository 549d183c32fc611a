"""How hard Hypothesis tries.

`HYPOTHESIS_PROFILE=nightly` turns every property into a soak.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=100, deadline=None, print_blob=True)
# The channel is what everything else stands on.
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=500)
settings.register_profile(
    "nightly",
    settings.get_profile("quick"),
    max_examples=20_000,
    suppress_health_check=[HealthCheck.too_slow],
)

CHOSEN: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")
OF_CHANNELS: Final = "thorough" if CHOSEN == "quick" else CHOSEN

settings.load_profile(CHOSEN)

conversations: Final = settings(max_examples=settings.get_profile(CHOSEN).max_examples)
"""For properties of channels whose examples open a channel each, or take a millisecond."""

brisk: Final = settings(max_examples=settings.get_profile(CHOSEN).max_examples // 2)
"""For properties whose examples take ten milliseconds and more."""
