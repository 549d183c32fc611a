"""Many small cases in one test.

A parametrized test costs pytest and its workers some three milliseconds a case, which is more than
a vector takes to be read.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeAlias

Test: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[Test], Test]


def each(name: str | tuple[str, ...], cases: Iterable[Any]) -> Decorator:
    """Call a test once for each case, as the arguments named; every case that fails is told.

    What fixtures give, the cases share.
    """
    names = (name,) if isinstance(name, str) else name
    every = [(case,) if isinstance(name, str) else case for case in cases]
    assert every, "no cases"

    def decorate(test: Test) -> Test:
        assert not inspect.iscoroutinefunction(test)
        signature = inspect.signature(test)

        @wraps(test)
        def call(*args: Any, **kwargs: Any) -> None:
            failures = list[Exception]()
            for case in every:
                try:
                    test(*args, **dict(zip(names, case, strict=True)), **kwargs)
                except Exception as error:
                    error.add_note(f"{', '.join(names)}: {', '.join(map(str, case))}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(every)} cases", failures)

        rest = [it for it in signature.parameters.values() if it.name not in names]
        call.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return call

    return decorate
