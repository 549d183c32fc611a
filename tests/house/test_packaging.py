"""What is shipped: three packages, typed, with scenarios and the commands that metadata promises.

What the built wheel really holds is checked by `.ci/run`, which builds and installs one.
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

from sphtp import __main__ as command

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKAGES = ["sphtp", "server/sphtp_server", "client/sphtp_client"]
SCENARIOS = {"scenarios": "sphtp_client/scenarios"}

# Which extras the modules of a folder, or of a file, may need beside what everybody needs.
EXTRAS = {
    "sphtp": (),
    "sphtp/__main__.py": ("cli",),
    "sphtp/core/arrays.py": ("arrays",),
    "sphtp/shell/discovery.py": ("discovery",),
    "sphtp/shell/metrics.py": ("metrics",),
    "sphtp/shell/web.py": ("metrics",),
    "sphtp/shell/nat.py": ("nat",),
    "server/sphtp_server": ("cli",),
    "server/sphtp_server/settings.py": ("cli", "nat"),
    "server/sphtp_server/registry": ("cli", "etcd"),
    "client/sphtp_client": ("cli", "sim"),
    "client/sphtp_client/relay": ("cli",),
    "client/sphtp_client/recording": ("cli", "sim", "record"),
    "client/sphtp_client/top": ("cli", "top"),
    "client/sphtp_client/plot": ("cli", "sim", "record", "plot"),
    "client/sphtp_client/cluster/dask_workers.py": ("cli", "sim", "dask"),
    "benchmarks/sphtp_benchmarks": ("cli", "sim"),
    "benchmarks/sphtp_benchmarks/systems": ("cli", "sim", "bench"),
}
IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+(?:, \w+)*)(?=[.\s]))", re.M)
IMPORTED_AS = {
    "eclipse-zenoh": "zenoh",
    "prometheus-client": "prometheus_client",
    "pyenet": "enet",
    "pyzmq": "zmq",
}


def test_the_wheel_ships_three_packages_and_the_scenarios_in_one_of_them() -> None:
    assert (WHEEL["packages"], WHEEL["force-include"]) == (PACKAGES, SCENARIOS)
    for source, target in SCENARIOS.items():
        assert list((ROOT / source).glob("*.toml"))
        assert target in {f"{Path(package).name}/scenarios" for package in PACKAGES}


def test_each_package_is_typed() -> None:
    assert [path for path in PACKAGES if not (ROOT / path / "py.typed").is_file()] == []


def test_each_package_has_a_front_door() -> None:
    assert [path for path in PACKAGES if not (ROOT / path / "__init__.py").is_file()] == []


def test_server_and_client_are_folders_and_not_packages() -> None:
    """With an `__init__.py` there, `import server` would work here and nowhere else."""
    assert not (ROOT / "server" / "__init__.py").exists()
    assert not (ROOT / "client" / "__init__.py").exists()


def test_the_installed_metadata_is_that_of_the_checkout() -> None:
    installed = importlib.metadata.metadata("sphtp")
    assert installed["Version"] == PROJECT["project"]["version"]
    assert installed["License-Expression"] == PROJECT["project"]["license"]
    assert "Description-Content-Type" in installed


def test_every_entry_point_resolves() -> None:
    entry_points = importlib.metadata.distribution("sphtp").entry_points
    groups = PROJECT["project"]["entry-points"]
    promised = {"sphtp", *groups["sphtp.commands"], *groups["sphtp.launchers"]}
    assert promised == {point.name for point in entry_points}
    for point in entry_points:
        assert callable(point.load()), point


def test_every_import_is_declared() -> None:
    """A library that happens to lie in a developer's environment is not on a user's machine."""
    own = {Path(package).name for package in (*PACKAGES, "benchmarks/sphtp_benchmarks")}
    # Type checkers bring along what they alone import from it.
    typing = {"typing_extensions"}
    known = own | sys.stdlib_module_names | typing | declared(PROJECT["project"]["dependencies"])
    unknown = {
        f"{file.relative_to(ROOT)}: {name}"
        for place in EXTRAS
        for file in modules(ROOT / place)
        for name in imported(file.read_text(encoding="utf-8")) - known - brought_to(file)
    }
    assert not unknown, "\n".join(sorted(unknown))


def test_pages_of_the_manual_and_completions_are_installed_where_programs_look() -> None:
    shared = WHEEL["shared-data"]
    assert all((ROOT / source).exists() for source in shared)
    assert shared["share/man/man1"] == "share/man/man1"
    assert set(shared.values()) == {
        "share/man/man1",
        "share/bash-completion/completions/sphtp",
        "share/zsh/site-functions/_sphtp",
        "share/fish/vendor_completions.d/sphtp.fish",
    }


def test_the_command_knows_which_extra_brings_what() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    told = ("cli", "sim", "top", "metrics", "record", "plot", "etcd", "dask", "nat")
    brought = {name: extra for extra in told for name in declared(extras[extra])}
    assert {name: brought[name] for name in brought.keys() - {"sphtp"}} == command.EXTRAS


def modules(place: Path) -> list[Path]:
    """Return the modules of a folder, or the one that a file is."""
    return [place] if place.is_file() else [*place.rglob("*.py")]


def brought_to(file: Path) -> set[str]:
    """Return what the extras bring that a module may need; the innermost folder decides."""
    places = [place for place in EXTRAS if file.is_relative_to(ROOT / place)]
    extras = PROJECT["project"]["optional-dependencies"]
    brought = {name for extra in EXTRAS[max(places, key=len)] for name in declared(extras[extra])}
    return brought | ({"pydantic_core"} if "pydantic" in brought else set())  # half of its API


def declared(requirements: list[str]) -> set[str]:
    """Return the packages that requirements bring, by the names under which they are imported."""
    names = [re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in requirements]
    return {IMPORTED_AS.get(name, name) for name in names}


def imported(text: str) -> set[str]:
    """Return the top-level names that a file imports anywhere."""
    return {name for found in IMPORT.finditer(text) for name in (found[1] or found[2]).split(", ")}
