"""The announcements of servers, as `docs/reference/wire` has them."""

from typing import Any

import pytest

from sphtp.core.control.announcement import MOST_TEXT, Announcement, decode_untrusted
from sphtp.errors import RemoteError
from tests.cases import each
from tests.interop.page import read_vectors, rows_under

VECTORS = [one for one in read_vectors() if one.name.startswith("announcement/")]
MALFORMED = [one for one in read_vectors() if one.name.startswith("malformed/announcement/")]


def texts_of(data: bytes) -> dict[str, str]:
    """Return the keys and values of a TXT record, each pair behind its length."""
    found = {}
    while data:
        key, _, value = data[1 : 1 + data[0]].decode().partition("=")
        found[key] = value
        data = data[1 + data[0] :]
    return found


@each("vector", VECTORS)
def test_an_announcement_is_as_written_and_its_fingerprint_is_of_the_secret(vector: Any) -> None:
    fields = dict(vector.fields)
    secret = fields.pop("secret")
    texts = texts_of(vector.data)
    assert texts == fields
    announcement = decode_untrusted(texts)
    assert announcement.encode() == fields
    key = bytes.fromhex(secret) if secret else None
    assert Announcement.make(announcement.address, announcement.cluster, key) == announcement
    assert [row[0] for row in rows_under("Announcements of servers")] == list(fields)
    assert MOST_TEXT == 255


@each("vector", MALFORMED)
def test_what_is_malformed_is_refused(vector: Any) -> None:
    with pytest.raises(RemoteError):
        decode_untrusted(texts_of(vector.data))
