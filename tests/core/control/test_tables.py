from tests.core.control.bus import Bus


def test_x():
    assert Bus()
