"""Keys: drawn, kept in files that nobody else may read, and read again."""

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from secrets import token_bytes, token_hex
from typing import Final

from sphtp.core.control.records import PeerRecord
from sphtp.core.secure.identity import Identity, format_key, parse_key
from sphtp.core.secure.vouch import SECRET_SIZE
from sphtp.errors import SettingsError

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
ENOUGH: Final = 1024
"""Bytes of a file with one key; whatever is longer is something else."""


def draw_identity(seed: int | None = None) -> Identity:
    """Make a new identity; with a seed anybody can guess it, which is for tests."""
    return Identity.draw(SystemRandom() if seed is None else Random(f"identity {seed}"))


def draw_secret() -> bytes:
    """Make a new secret for a cluster."""
    return token_bytes(SECRET_SIZE)


def save_identity(path: Path, identity: Identity, *, overwrite: bool = False) -> None:
    """Write an identity to a file of mode 0600, whole or not at all. Raises ``SettingsError``."""
    _save(path, identity.export(), overwrite)


def save_secret(path: Path, secret: bytes, *, overwrite: bool = False) -> None:
    """Write a cluster's secret, as ``save_identity`` does."""
    _save(path, format_key(secret), overwrite)


def load_identity(path: str | Path) -> Identity:
    """Read an identity. Raises ``SettingsError``, also when others may read the file."""
    return Identity(_load(Path(path)))


def load_secret(path: str | Path) -> bytes:
    """Read a cluster's secret. Raises ``SettingsError``, also when others may read the file."""
    return _load(Path(path))


def load_public_keys(path: str | Path) -> frozenset[bytes]:
    """Read public keys, one per line; what follows a # is left out. Raises ``SettingsError``."""
    keys = set()
    for number, line in enumerate(_read_text(Path(path)).splitlines(), start=1):
        if word := line.partition("#")[0].strip():
            keys.add(_parse(word, f"{path}, line {number}"))
    return frozenset(keys)


def allow_only(keys: Iterable[bytes]) -> Callable[[PeerRecord], bool]:
    """Return what to give ``ServerOptions(admit=...)`` so that only these public keys may come."""
    allowed = frozenset(keys)
    return lambda record: record.key in allowed


def _save(path: Path, key: str, overwrite: bool) -> None:
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            (os.replace if overwrite else os.link)(draft, path)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except FileExistsError as error:
        raise SettingsError(f"{path} is there already, and is not overwritten") from error
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error


def _load(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & OTHERS:
                raise SettingsError(
                    f"{path} is open to others (mode {stat.S_IMODE(mode):04o}); "
                    f"make it yours alone: chmod 600 {path}"
                )
            data = file.read(ENOUGH)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    return _parse(data.decode("ascii", errors="replace"), str(path))


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
