"""Tests on real sockets do not wait for ever."""

import pytest
import trio

from tests.deadline import within_20_seconds

pytestmark = within_20_seconds


async def test_the_deadline_of_a_module_is_in_force(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("trio")
    assert marker is not None
    assert marker.kwargs["run"] is not trio.run
    assert trio.current_effective_deadline() <= trio.current_time() + 20
