"""What the pages of the wire say in words, and their examples do not hold."""

import hashlib
from pathlib import Path

from sphtp.core.channel.security import RosterAuthenticator, Verdict
from sphtp.core.schema import Schema
from sphtp.shell.keys import load_secret, save_secret
from tests.interop.page import PARTS, TEXT, named_on_page, vectors_of_part

SECRET = bytes(range(32))


def block_after(words: str) -> str:
    """Return the first block of text behind these words."""
    return TEXT.partition(words)[2].partition("```text\n")[2].partition("```")[0]


def test_each_vector_is_named_once_on_the_page_of_its_part_and_in_its_order():
    named = [entry for page in ("README", *PARTS) for entry in named_on_page(page)]
    assert named == [(part, vector.name) for part in PARTS for vector in vectors_of_part(part)]


def test_the_file_of_a_secret_is_as_written_and_its_first_line_may_be_missing(tmp_path: Path):
    text = block_after("This is the file of the secret 00 01 02 ... 1f:")
    ours = tmp_path / "ours"
    save_secret(ours, SECRET)
    assert ours.read_text() == text
    for other in (text, text.splitlines()[1], "\n " + text.splitlines()[1] + " \r\n"):
        path = tmp_path / "theirs"
        path.write_text(other)
        path.chmod(0o600)
        assert load_secret(path) == SECRET


def test_a_schema_hash_is_read_one_way_and_sent_the_other():
    lines = block_after("Description of the examples").splitlines()
    digest = hashlib.sha256("\n".join(lines).encode()).digest()[:8]
    number = Schema(lines).schema_hash
    assert number == int.from_bytes(digest, "big")
    for said in (digest.hex(), str(number), number.to_bytes(8, "little").hex()):
        assert f"`{said}`" in TEXT or f"\n  {said}," in TEXT


def test_in_a_cluster_nobody_is_without_an_id():
    assert RosterAuthenticator({}).judge(bytes(32), 0) is Verdict.REJECT


def test_what_is_not_on_the_wire_says_nothing_of_streams():
    assert "# Part four: streams" in TEXT
    assert "streams" not in TEXT.rpartition("# Not on the wire yet")[2].lower()
