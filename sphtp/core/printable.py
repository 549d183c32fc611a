"""Foreign text that may be shown: what a peer said must not steer a terminal.

Controls (C0, DEL and C1) begin escape sequences, overrides of direction show text in another order
than it has, separators of lines and paragraphs make one line two. All of them, and whatever else
is not to be seen, are written as the escapes of JSON, so that a line of JSON stays one.
"""

from typing import Final

LONGEST: Final = 1200
"""Characters of what a peer says that are shown."""


def printable(text: str, longest: int = LONGEST) -> str:
    """Return a text of which every character is to be seen, and which is not too long."""
    cut = text if len(text) <= longest else f"{text[:longest]}..."
    return cut if cut.isprintable() else "".join(map(_seen, cut))


def printable_lines(text: str) -> str:
    """Return text of this side, of any length and several lines, in which others' words may be."""
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


def _seen(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
