"""What a server says of itself is followed by those who share its secret, and only by them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphtp.core.control.announcement import Announcement, clusters_of, decode_untrusted
from sphtp.core.control.records import ServerAddress
from sphtp.errors import RemoteError
from tests.cases import each

HERE = ServerAddress.parse("tcp://127.0.0.1:8764")
SECRET, OTHER = bytes(32), bytes([1]) * 32


def obstacle(announced: bytes | None, own: bytes | None) -> str:
    return Announcement.make(HERE, 2, announced).obstacle(own, has_tls=False)


def test_a_secret_decides_who_follows() -> None:
    assert obstacle(None, None) == obstacle(SECRET, SECRET) == ""
    assert obstacle(SECRET, OTHER) == "that has another secret"
    assert "has a secret" in obstacle(SECRET, None)
    assert "has no secret" in obstacle(None, SECRET)


def test_tls_is_followed_by_those_who_have_certificates() -> None:
    announcement = Announcement.make(ServerAddress.parse("tls+tcp://10.0.0.1:8764"), 2, None)
    assert "TLS" in announcement.obstacle(None, has_tls=False)
    assert announcement.obstacle(None, has_tls=True) == ""


@given(st.integers(2, 2**32 - 1), st.integers(1, 65534), st.sampled_from([None, SECRET]))
def test_what_is_encoded_is_decoded(cluster: int, port: int, secret: bytes | None) -> None:
    address = ServerAddress.parse(f"tcp://10.0.0.1:{port}")
    announcement = Announcement.make(address, cluster, secret)
    assert decode_untrusted(announcement.encode()) == announcement


@settings(max_examples=25)
@given(st.sampled_from(["address", "cluster", "fingerprint"]), st.text(max_size=300))
def test_a_changed_announcement_is_malformed_or_not_followed(key: str, value: str) -> None:
    said = Announcement.make(HERE, 2, SECRET)
    try:
        heard = decode_untrusted({**said.encode(), key: value})
    except RemoteError:
        return
    assert heard == said or heard.obstacle(SECRET, has_tls=True)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["address", "cluster", "fingerprint"]), st.text()))
def test_whatever_arrives_is_understood_or_refused(values: dict[str, str]) -> None:
    with suppress(RemoteError):
        decode_untrusted({"version": "1", **values}).obstacle(SECRET, has_tls=True)
    heard = {**Announcement.make(HERE, 2, None).encode(), "fingerprint": "\ud800"}
    with pytest.raises(RemoteError, match="ASCII"):
        decode_untrusted(heard)


@each(
    "changed",
    [
        {"version": "2"},
        {"address": "tcp://10.0.0.1:0"},
        {"more": "x" * 300},
        *({"cluster": text} for text in ("x", "2", "-0000002", " 0000002", "0_000002", "0" * 9)),
    ],
)
def test_malformed_announcements_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(RemoteError):
        decode_untrusted({**Announcement.make(HERE, 2, None).encode(), **changed})


def test_servers_of_one_cluster_belong_together() -> None:
    there = ServerAddress.parse("tcp://127.0.0.1:9000")
    both = [Announcement.make(address, 2, None) for address in (there, HERE, HERE)]
    assert clusters_of(both) == [[HERE, there]]
    assert clusters_of([*both, Announcement.make(HERE, 4, None)]) == [[HERE, there], [HERE]]
