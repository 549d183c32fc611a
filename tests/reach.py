"""What something holds on to, whoever made it."""

from collections.abc import Iterator
from gc import get_referents
from types import FunctionType, ModuleType


def reach(*roots: object) -> Iterator[object]:
    """All that can be come at from these, but by way of types, modules and what functions know."""
    seen, waiting = set(map(id, roots)), list(roots)
    while waiting:
        it = waiting.pop()
        yield it
        held = it.__closure__ or () if isinstance(it, FunctionType) else get_referents(it)
        for one in held:
            if id(one) not in seen and not isinstance(one, type | ModuleType):
                seen.add(id(one))
                waiting.append(one)


def count(kind: type | tuple[type, ...], *roots: object) -> int:
    """How many things of a kind can be come at."""
    return sum(isinstance(it, kind) for it in reach(*roots))
