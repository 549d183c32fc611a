"""Each flavour has all that the classes for Trio have, under the same names."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import sphtp
from sphtp import aio, blocking
from sphtp.shell.flavours import CLASSES, OF_TRIO_ONLY, OPENERS, opens_block, public_members
from tests.house.pages import load_tool

MODULES = ("", ".config", ".security", ".streams", ".groups", ".messages", ".events", ".observe")
FLAVOURS = pytest.mark.parametrize("flavour", [blocking, aio], ids=["blocking", "aio"])
RENAMED = {"aclose": "close"}


def public() -> Iterator[tuple[str, Any]]:
    for name in MODULES:
        module = import_module(f"sphtp{name}")
        yield from ((each, getattr(module, each)) for each in dir(module) if each[0] != "_")


def waits(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or opens_block(function)


def is_for_nursery(function: Any) -> bool:
    """Return True for a task of a nursery, which only a program on Trio has."""
    return "task_status" in inspect.signature(function).parameters


def test_whatever_waits_is_listed() -> None:
    found = {name: it for name, it in public() if not inspect.isfunction(it) or waits(it)}
    functions = {
        name for name, it in found.items() if inspect.isfunction(it) and not is_for_nursery(it)
    }
    assert functions == set(OPENERS)
    classes = {
        name
        for name, it in found.items()
        if isinstance(it, type) and any(waits(member) for member in vars(it).values())
    }
    assert classes == set(CLASSES)


@FLAVOURS
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_public_members_of_the_one_for_trio(flavour: ModuleType, name: str) -> None:
    original = getattr(import_module(CLASSES[name]), name)
    derived = getattr(flavour, name)
    assert derived.__doc__ == original.__doc__
    for key, member in public_members(original).items():
        other = getattr(derived, RENAMED.get(key, key) if flavour is blocking else key)
        assert other.__doc__ == member.__doc__
        if not isinstance(member, property):
            said = set(inspect.signature(other).parameters)
            assert said == set(inspect.signature(member).parameters) - set(OF_TRIO_ONLY)
    assert {key for key in vars(original) if key in {"__exit__"}} <= set(dir(derived))


def test_whatever_returns_a_block_is_one_in_every_flavour() -> None:
    returns_block = {
        f"{name}.{key}"
        for name, module in CLASSES.items()
        for key, member in public_members(getattr(import_module(module), name)).items()
        if inspect.isfunction(member)
        and "ContextManager" in str(inspect.signature(member).return_annotation)
        and not opens_block(member)
    }
    assert returns_block == set()


@FLAVOURS
def test_a_module_lists_what_it_has(flavour: ModuleType) -> None:
    assert {*OPENERS, *CLASSES} <= set(dir(flavour))
    assert all(getattr(flavour, name).__doc__ for name in dir(flavour))
    with pytest.raises(AttributeError, match="no attribute 'opened'"):
        flavour.opened  # noqa: B018


@pytest.mark.plain  # A compiled module has no source to read.
def test_the_stubs_are_fresh() -> None:
    tool = load_tool("flavours")
    assert tool.main(["--check"]) == 0, "run `make docs`"


def test_the_flavours_are_modules_of_the_library() -> None:
    assert sphtp.blocking is blocking
    assert sphtp.aio is aio
