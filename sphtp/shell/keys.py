"""Keys: they are drawn, saved to files that only their owner may read, and loaded.

The key log is for the analysis of captured packets, as SSLKEYLOGFILE is for TLS. Everybody who has
the log and the capture can read all messages in these packets, and can forge messages while the
channels live. So only an environment variable switches the log on, every node that writes one logs
a warning, and only the owner may read the file.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Final

from sphtp.core.control.records import Peer
from sphtp.core.secure.identity import Identity, format_key, parse_key
from sphtp.core.secure.signing import Certificate, ClusterKey, ServerKey
from sphtp.core.secure.vouch import SECRET_SIZE
from sphtp.errors import SettingsError
from sphtp.shell.config import SECRETS

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_own(path: Path, most: int = -1) -> bytes:
    """Return the content of a file: at most ``most`` bytes, or with -1 all of it.

    Raises ``SettingsError`` if others have access to the file, and ``OSError`` if it is unreadable.
    """
    with path.open("rb") as file:
        # The mode of the open file, because another file may replace it at the path.
        _require_own(path, os.fstat(file.fileno()).st_mode)
        return file.read(most)


def _require_own(path: Path, mode: int) -> None:
    if mode & OTHERS:
        raise SettingsError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}); "
            f"make it private: chmod 600 {path}"
        )


OF_NODE: Final = "an identity"
OF_CLUSTER: Final = "a cluster's secret"
OF_AUTHORITY: Final = "a cluster's key"
OF_SERVER: Final = "a server's key"

_TITLES: Final = {
    OF_NODE: "# SphTP identity: keep it to yourself",
    OF_CLUSTER: "# SphTP secret of a cluster: keep it among its members",
    OF_AUTHORITY: "# SphTP key of a cluster, which vouches for servers: keep it to yourself",
    OF_SERVER: "# SphTP key of a server: keep it to yourself",
}
"""The first line of a file, which shows the kind of its key."""

ENOUGH: Final = 1024
"""The most bytes that are read of a file; no file with a key is longer."""


def draw_identity() -> Identity:
    """Draw a new identity."""
    return Identity.draw(SECRETS)


def draw_secret() -> bytes:
    """Draw a new secret for a cluster."""
    return token_bytes(SECRET_SIZE)


def draw_cluster_key() -> ClusterKey:
    """Draw a new key of a cluster, which certifies servers."""
    return ClusterKey.draw(SECRETS)


def draw_server_key(cluster: ClusterKey | None = None) -> ServerKey:
    """Draw a new key for a server, certified by the cluster's key if that is given."""
    key = ServerKey.draw(SECRETS)
    return key if cluster is None else key.certified(cluster)


def save_identity(path: Path, identity: Identity, *, overwrite: bool = False) -> None:
    """Write an identity to a file of mode 0600, whole or not at all.

    Raises ``SettingsError`` if the file cannot be written, or exists and is not to be overwritten.
    """
    _save(path, OF_NODE, identity.export(), overwrite)


def save_secret(path: Path, secret: bytes, *, overwrite: bool = False) -> None:
    """Write a cluster's secret, as ``save_identity`` does."""
    _save(path, OF_CLUSTER, format_key(secret), overwrite)


def save_cluster_key(path: Path, key: ClusterKey, *, overwrite: bool = False) -> None:
    """Write a cluster's key, as ``save_identity`` does."""
    _save(path, OF_AUTHORITY, key.export(), overwrite)


def save_server_key(path: Path, key: ServerKey, *, overwrite: bool = False) -> None:
    """Write a server's key and its certificate, as ``save_identity`` does."""
    lines = [key.export()] if key.certificate is None else [key.export(), key.certificate.export()]
    _save(path, OF_SERVER, "\n".join(lines), overwrite)


def load_identity(path: str | Path) -> Identity:
    """Read an identity from a file, such as ``sphtp keygen`` writes.

    Raises ``SettingsError`` if the file is unreadable, or has something else or another kind of
    key, or if others have access to it.
    """
    return Identity(_load(Path(path), OF_NODE))


def load_secret(path: str | Path) -> bytes:
    """Read a cluster's secret, 32 bytes, from a file. Raises as ``load_identity``."""
    return _load(Path(path), OF_CLUSTER)


def load_cluster_key(path: str | Path) -> ClusterKey:
    """Read a cluster's key from a file. Raises as ``load_identity``."""
    return ClusterKey(_load(Path(path), OF_AUTHORITY))


def load_server_key(path: str | Path) -> ServerKey:
    """Read a server's key, and its certificate if any, from a file. Raises as ``load_identity``."""
    key, _, certificate = _load_text(Path(path), OF_SERVER).strip().partition("\n")
    try:
        parsed = Certificate.parse(certificate) if certificate else None
        return ServerKey(parse_key(key), parsed)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def load_token(path: Path) -> str:
    """Read a token for HTTP, the only line of a file.

    Raises ``SettingsError`` if the file is unreadable, or others have access to it.
    """
    return _read_private(path).strip()


def load_public(path: Path) -> bytes:
    """Return the public key of the private key in a file, whose title shows the kind.

    Raises as ``load_identity``.
    """
    what = _title_of(_read_private(path))
    if what == OF_SERVER:
        return load_server_key(path).public
    return load_cluster_key(path).public if what == OF_AUTHORITY else load_identity(path).public


KEY_LOG: Final = "SPHTPKEYLOGFILE"
"""The environment variable that names the file of the key log; without it there is no log.

`sphtp cluster` passes this variable on to its processes, in contrast to those that begin with
``SPHTP_``, which are settings of a command.
"""

log: Final = logging.getLogger("sphtp.keys")


class KeyLogFile:
    """A key log in a file, to which several programs may write.

    A line has ``SPHTP_CHANNEL_KEY``, a connection id and a key, both in hexadecimal digits.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._is_whole = True

    def write(self, connection_id: int, key: bytes) -> None:
        """Append a line. A failure is logged once, and does not disturb the channel."""
        line = f"SPHTP_CHANNEL_KEY {connection_id:08x} {key.hex()}\n"
        try:
            # One call, so that the lines of several programs do not mix.
            os.write(self._descriptor, line.encode())
        except OSError as error:
            if self._is_whole:
                log.warning("cannot write keys to %s: %s", self._path, error.strerror)
            self._is_whole = False


@contextmanager
def open_key_log(environ: Mapping[str, str]) -> Iterator[KeyLogFile | None]:
    """Open the key log that the environment names, for the length of the block; yield it, or None.

    Raises ``SettingsError`` if the file cannot be written, or others have access to it.
    """
    path = environ.get(KEY_LOG, "")
    if not path:
        yield None
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SettingsError(f"{KEY_LOG}: cannot write {path}: {error.strerror}") from error
    try:
        _require_own(Path(path), os.fstat(descriptor).st_mode)
        log.warning("%s is set: the keys of all channels go to %s", KEY_LOG, path)
        yield KeyLogFile(path, descriptor)
    finally:
        os.close(descriptor)


def check_new(paths: Iterable[Path]) -> None:
    """Raise ``SettingsError`` if one of the files to write exists already, or its path is wrong."""
    for path in paths:
        try:
            path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror}") from error
        raise SettingsError(f"{path} is there already, and is not overwritten")


def load_public_keys(path: str | Path) -> frozenset[bytes]:
    """Read a file with a public key on each line; text after a # is ignored.

    Raises ``SettingsError`` if the file is unreadable, or has something else or private keys.
    """
    keys, text = set(), _read_text(Path(path))
    if (other := _title_of(text)) is not None:
        raise SettingsError(f"{path} holds {other}, and public keys are wanted")
    for number, line in enumerate(text.splitlines(), start=1):
        if word := line.partition("#")[0].strip():
            keys.add(_parse(word, f"{path}, line {number}"))
    return frozenset(keys)


def allow_only(keys: Iterable[bytes]) -> Callable[[Peer], bool]:
    """Return a function for ``open_server(admit=...)`` that admits only clients with these keys."""
    allowed = frozenset(keys)
    return lambda peer: peer.key in allowed


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
    """Write a file, whole or not at all."""
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
    """Give a file a further name unless that exists; atomic if there are hard links."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        _write(path, draft.read_text())


def _load(path: Path, what: str) -> bytes:
    return _parse(_load_text(path, what), str(path))


def _load_text(path: Path, what: str) -> str:
    """Return the text of a file below its title."""
    text = _read_private(path)
    if (other := _title_of(text)) not in (None, what):
        raise SettingsError(f"{path} holds {other}, and {what} is wanted")
    # Files of early versions have no title.
    return text.removeprefix(_TITLES[what])


def _read_private(path: Path) -> str:
    try:
        return read_own(path, ENOUGH).decode("ascii", errors="replace")
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error


def _title_of(text: str) -> str | None:
    return next((what for what, title in _TITLES.items() if text.startswith(title)), None)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not a text file") from error


def _parse(text: str, where: str) -> bytes:
    try:
        return parse_key(text)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error
