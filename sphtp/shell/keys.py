"""Keys: drawn, kept in files that nobody else may read, and read again."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Final

from sphtp.core.control.records import PeerRecord
from sphtp.core.secure.identity import Identity, format_key, parse_key
from sphtp.core.secure.vouch import SECRET_SIZE
from sphtp.errors import SettingsError
from sphtp.shell.private import read_own
from sphtp.shell.randomness import SECRETS

OF_NODE: Final = "an identity"
OF_CLUSTER: Final = "a cluster's secret"

_TITLES: Final = {
    OF_NODE: "# SphTP identity: keep it to yourself",
    OF_CLUSTER: "# SphTP secret of a cluster: keep it among its members",
}
"""The first line of a file, so that none is taken for another one."""

ENOUGH: Final = 1024
"""Bytes of a file with one key; whatever is longer is something else."""


def draw_identity() -> Identity:
    """Make a new identity."""
    return Identity.draw(SECRETS)


def draw_secret() -> bytes:
    """Make a new secret for a cluster."""
    return token_bytes(SECRET_SIZE)


def save_identity(path: Path, identity: Identity, *, overwrite: bool = False) -> None:
    """Write an identity to a file of mode 0600, whole or not at all. Raises ``SettingsError``."""
    _save(path, OF_NODE, identity.export(), overwrite)


def save_secret(path: Path, secret: bytes, *, overwrite: bool = False) -> None:
    """Write a cluster's secret, as ``save_identity`` does."""
    _save(path, OF_CLUSTER, format_key(secret), overwrite)


def load_identity(path: str | Path) -> Identity:
    """Read an identity. Raises ``SettingsError``, also when others may read the file."""
    return Identity(_load(Path(path), OF_NODE))


def load_secret(path: str | Path) -> bytes:
    """Read a cluster's secret. Raises ``SettingsError``, also when others may read the file."""
    return _load(Path(path), OF_CLUSTER)


def check_new(paths: Iterable[Path]) -> None:
    """Raise ``SettingsError`` when there is a file already where one is to be written."""
    for path in paths:
        if path.exists():
            raise SettingsError(f"{path} is there already, and is not overwritten")


def load_public_keys(path: str | Path) -> frozenset[bytes]:
    """Read public keys, one per line; what follows a # is left out. Raises ``SettingsError``."""
    keys, text = set(), _read_text(Path(path))
    if (other := _title_of(text)) is not None:
        raise SettingsError(f"{path} holds {other}, and public keys are wanted")
    for number, line in enumerate(text.splitlines(), start=1):
        if word := line.partition("#")[0].strip():
            keys.add(_parse(word, f"{path}, line {number}"))
    return frozenset(keys)


def allow_only(keys: Iterable[bytes]) -> Callable[[PeerRecord], bool]:
    """Return what to give ``ServerOptions(admit=...)`` so that only these public keys may come."""
    allowed = frozenset(keys)
    return lambda record: record.key in allowed


def _save(path: Path, what: str, key: str, overwrite: bool) -> None:
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        try:
            _write(draft, f"{_TITLES[what]}\n{key}\n")
            (os.replace if overwrite else _put_new)(draft, path)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except FileExistsError as error:
        raise SettingsError(f"{path} is there already, and is not overwritten") from error
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """Make a file; half of one does not stay."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _put_new(draft: Path, path: Path) -> None:
    """Give a file its name unless there is one; whole or not at all, where there are hard links."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        _write(path, draft.read_text())


def _load(path: Path, what: str) -> bytes:
    try:
        data = read_own(path, ENOUGH)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    text = data.decode("ascii", errors="replace")
    if (other := _title_of(text)) not in (None, what):
        raise SettingsError(f"{path} holds {other}, and {what} is wanted")
    # Files from before they had a title hold the key alone.
    return _parse(text.removeprefix(_TITLES[what]), str(path))


def _title_of(text: str) -> str | None:
    return next((what for what, title in _TITLES.items() if text.startswith(title)), None)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is no text") from error


def _parse(text: str, where: str) -> bytes:
    try:
        return parse_key(text)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error
