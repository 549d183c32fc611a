"""Whose doing it was: the one place where an error changes its type."""

import pytest

from sphtp.errors import LocalError, RemoteError, SphtpError, WireError, untrusted


@untrusted
def decode_untrusted(data: bytes) -> int:
    """Stand in for a decoder."""
    if not data:
        raise WireError("nothing there")
    return data[0] // (data[0] - 1)


def test_good_bytes_pass() -> None:
    assert decode_untrusted(b"\x02") == 2


def test_a_local_error_leaves_as_a_remote_one() -> None:
    with pytest.raises(RemoteError, match=r"^nothing there$") as caught:
        decode_untrusted(b"")
    assert isinstance(caught.value.__cause__, WireError)
    assert not isinstance(caught.value, LocalError)


def test_a_defect_of_ours_is_not_blamed_on_the_peer() -> None:
    with pytest.raises(ZeroDivisionError):
        decode_untrusted(b"\x01")


def test_a_marked_function_keeps_its_name() -> None:
    assert decode_untrusted.__name__ == "decode_untrusted"
    assert decode_untrusted.__doc__ == "Stand in for a decoder."


def test_every_error_of_the_library_has_one_root() -> None:
    def leaves(kind: type[SphtpError]) -> set[type[SphtpError]]:
        return {kind}.union(*(leaves(child) for child in kind.__subclasses__()))

    assert {WireError, RemoteError, LocalError} < leaves(SphtpError)
