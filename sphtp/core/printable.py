"""Text for terminals and logs: text of peers made safe, and numbers as people write them.

The text of a peer must not control a terminal (Unicode TR 36). Control characters (C0, DEL and C1)
move the cursor or begin escape sequences. Directional overrides change the order in which text
appears. Separators of lines and paragraphs turn one line into two. These and all other characters
that are not printable become escapes of JSON, so that a line of JSON stays one line.
"""

import re
from collections.abc import Iterable
from typing import Final

LONGEST: Final = 1200
"""The most characters of a peer's text that are shown, unless the caller allows more or fewer."""


def printable(text: str, longest: int = LONGEST) -> str:
    """Return a text, with escapes for unprintable characters.

    If the text is longer than ``longest`` characters, it is cut there, and ``...`` follows.
    """
    cut = text if len(text) <= longest else f"{text[:longest]}..."
    return cut if cut.isprintable() else "".join(map(_seen, cut))


def peer_label(name: str, number: int) -> str:
    """Return a peer's name with its id, or the id alone: ``fluid-1 (0x1a2b3c4d)``."""
    return f"{printable(name)} ({number:#010x})" if name else f"{number:#010x}"


def printable_lines(text: str) -> str:
    """Return a text of this side, which may quote a peer, with each line printable and not cut."""
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


def _seen(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def without_password(address: str) -> str:
    """Return an address without the part that may be a user and password, for an error."""
    return re.sub(r"(?s)^([a-z+]+://)?.*@", r"\1...@", address)


def listed(names: Iterable[str], most: int = 4) -> str:
    """Return names as people write them: ``ada, bob and 3 more``."""
    all_names = [*names]
    shown = all_names[:most]
    if len(all_names) > most:
        return f"{', '.join(shown)} and {len(all_names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def percent(share: float) -> str:
    """Return a share from 0 to 1 in percent: at most two significant digits, or ``100 %``."""
    return f"{100 * share:.2g} %" if share < 0.095 else f"{100 * share:.0f} %"


def in_seconds(seconds: float) -> str:
    """Return a time in the unit that people would use."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def in_bytes(size: float) -> str:
    """Return a size in the unit that people would use."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
