"""Tests stay at the border of the core: few know how it is made; none touches what is private."""

from tests.scripts import load_script

border = load_script("benchmarks/border.py")


def test_few_modules_of_tests_know_internals_and_none_names_what_is_private() -> None:
    modules = border.texts()
    users = border.users_of_internals(modules)
    assert len(users) <= border.MOST, users
    assert border.touches(modules) == {}


def test_what_stands_at_the_border_is_there_and_stands_in_one_list() -> None:
    listed = [name for modules in border.BORDER.values() for name in modules]
    assert [name for name in listed if not border.is_module(name)] == []
    assert len(set(listed)) == len(listed)
