"""What is secret stands in no repr, and so in no log and no traceback; and follows from no seed."""

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path
from pkgutil import walk_packages

import sphtp
import sphtp_client
import sphtp_server
from sphtp.core.entropy import Entropy, Secrets

ROOT = Path(__file__).resolve().parents[2]

SECRET = b"to be told to nobody".ljust(32)
NAMES = {"key", "psk", "secret", "receiver_key", "reset_key", "cluster_secret"}
"""Of fields that hold keys."""
PUBLIC = {
    "Announce",
    "EtcdAccess",
    "PeerPin",
    "HolderKey",
    "Peer",
    "SignatureVerdict",
    "PeerRecord",
    "RecordEncoding",
    "Problem",
    "SealedAnswer",
    "SigningSession",
    "Tls",
}
"""Records whose keys are public ones, or the name of a file or of a setting."""


def records() -> Iterator[type]:
    """Every record with a field by one of these names."""
    for package in (sphtp, sphtp_server, sphtp_client):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            for _, it in getmembers(import_module(module.name), isclass):
                if it.__module__ == module.name and NAMES.intersection(names_of(it)):
                    yield it


def names_of(record: type) -> list[str]:
    if is_dataclass(record):
        return [field.name for field in fields(record)]
    return list(getattr(record, "_fields", ()))


def fill(record: type) -> object:
    """One that has the secret wherever it may have one."""
    values = {name: SECRET if name in NAMES else 0 for name in names_of(record)}
    if issubclass(record, tuple):
        return record(**values)
    filled = object.__new__(record)
    for name, value in values.items():
        object.__setattr__(filled, name, value)
    return filled


def test_no_secret_is_in_the_repr_of_a_record() -> None:
    found = {it.__name__: it for it in records()}
    assert {"SecurityContext", "Security", "StreamKey", "Welcome", "HostedReceiver"} <= set(found)
    secret = [it for name, it in found.items() if name not in PUBLIC]
    assert [it for it in secret if "to be told" in repr(fill(it))] == []


# Where a generator may be made that a seed decides: the decisions of the shell, faults on
# purpose, and physics. What is drawn there is nobody's key.
SEEDED = {
    "sphtp/shell/config.py",
    "sphtp/shell/impairment.py",
    "benchmarks/sphtp_benchmarks/flood/junk.py",
    "client/sphtp_client/relay/impairment.py",
}


def makes_seeded(path: Path) -> bool:
    """Whether a module makes a generator of the standard library that a seed may decide."""
    text = path.read_text(encoding="utf-8")
    if "Random" not in text:
        return False
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = {f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in calls}
    return "Random" in names


def test_only_the_test_kit_makes_secrets_from_a_seed() -> None:
    """What must hold: a generator with a seed is made where no key, token or nonce is drawn."""
    made = {
        str(path.relative_to(ROOT))
        for package in ("sphtp", "server", "client", "benchmarks/sphtp_benchmarks")
        for path in (ROOT / package).rglob("*.py")
        if makes_seeded(path)
    }
    assert {path for path in made if not path.startswith("sphtp/testing/")} == SEEDED
    assert any(path.startswith("sphtp/testing/") for path in made)


def test_decisions_can_draw_no_key() -> None:
    """What must hold: what a seed decides gives numbers in a range, and no bits to make keys of."""
    drawn = {name for name in vars(Entropy) if not name.startswith("_")}
    assert drawn == {"random", "uniform"}
    assert "getrandbits" in vars(Secrets)
