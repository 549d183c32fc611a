"""Scenario files: the shipped ones run, nonsense is refused by file, key, value and bounds."""

from pathlib import Path

import pytest

from sphtp.errors import SettingsError
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.scenario import Scenario, ScenarioError
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import max_slabs
from sphtp_client.simulation.state import state_sha256
from tests.cases import each

SCENARIOS = Path(__file__).parents[3] / "scenarios"

SOUND = {
    "box": "[0.4, 0.08, 0.08]",
    "gravity": "[0.0, 0.0, -9.81]",
    "dt": "4e-5",
    "stiffness": "2.5e4",
    "damping": "0.1",
    "max_speed": "10.0",
}
GAS = {
    "kind": '"gas"',
    "count": "40",
    "radius": "0.01",
    "spread": "0.2",
    "density": "1000.0",
    "speed": "1.0",
    "seed": "1",
}
BALL = {"kind": '"ball"', "radius": "0.01", "position": "[0.2, 0.04, 0.04]"}
RACK = {"kind": '"rack"', "radius": "0.01", "rows": "3", "apex": "[0.1, 0.04, 0.04]"}
RAIN = {"kind": '"rain"', "count": "5", "radius": "0.01", "seed": "1"}


def toml(top: dict[str, str], *groups: dict[str, str]) -> str:
    tables = [("", top), *(("[[spheres]]\n", group) for group in groups)]
    return "\n".join(
        head + "".join(f"{key} = {value}\n" for key, value in table.items())
        for head, table in tables
    )


TOP_NONSENSE = [
    # changed keys, the key blamed, its value, a word of what is allowed
    ({"box": "[-1.0, 0.08, 0.08]"}, "box[0]", "-1.0", "greater than or equal to"),
    ({"box": "[0.4, 0.08]"}, "box[2]", "nothing", "required"),
    ({"box": "[0.4, 0.08, 0.02]"}, "box[2]", "0.02", "must be 0.02424 to"),
    ({"box": "[inf, 0.08, 0.08]"}, "box[0]", "inf", "finite"),
    ({"box": "[1e6, 0.08, 0.08]"}, "box[0]", "1e+06", "to 25165.8 m"),
    ({"gravity": "-9.81"}, "gravity", "-9.81", "tuple (m/s2)"),
    ({"gravity": "[0, 0, nan]"}, "gravity[2]", "nan", "finite"),
    ({"dt": "0.0"}, "dt", "0.0", "greater than 0 (s, time step)"),
    ({"dt": "true"}, "dt", "True", "number"),
    ({"dt": '"fast"'}, "dt", "'fast'", "number (s, time step)"),
    ({"dt": "1e-3"}, "dt", "0.001", "at most 3.253e-05 s"),
    ({"steps": "-1"}, "steps", "-1", "greater than or equal to 0"),
    ({"steps": "1.5"}, "steps", "1.5", "integer"),
    ({"stiffness": "-1.0"}, "stiffness", "-1.0", "greater than 0 (N/m"),
    ({"stiffness": "2e4"}, "stiffness", "20000", "must be at least 2.262e+04 N/m"),
    ({"damping": "1.0"}, "damping", "1.0", "less than 1"),
    ({"max_speed": "0.5"}, "spheres[0].speed", "1.0", "at or below max_speed, 0.5 m/s"),
    ({"max_speed": "200.0"}, "max_speed", "200", "at most 160 m/s"),
    ({"colour": '"red"'}, "colour", "'red'", "unknown key; known are title, box"),
]


@each(("change", "key", "value", "allowed"), TOP_NONSENSE)
def test_a_wrong_value_is_refused_by_name(tmp_path, change, key, value, allowed):
    top = {**SOUND, "dt": "2.5e-5"} | change
    assert_refused(tmp_path, toml(top, GAS), key, value, allowed)


GROUP_NONSENSE = [
    (GAS | {"radius": "-0.01"}, "radius", "-0.01", "(m, radius of a sphere)"),
    (GAS | {"radius": '"big"'}, "radius", "'big'", "number"),
    (GAS | {"spread": "1.0"}, "spread", "1.0", "less than or equal to 0.9"),
    (GAS | {"density": "0"}, "density", "0", "greater than 0 (kg/m3)"),
    (GAS | {"speed": "-1.0"}, "speed", "-1.0", "greater than or equal to 0 (m/s"),
    (GAS | {"seed": "-1"}, "seed", "-1", "greater than or equal to 0"),
    (GAS | {"count": "0"}, "count", "0", "greater than or equal to 1"),
    (GAS | {"count": "true"}, "count", "True", "integer"),
    (GAS | {"count": "5000"}, "count", "5000", "must be at most 144, so many"),
    (GAS | {"count": "100001"}, "count", "100001", "less than or equal to 100000"),
    (GAS | {"rows": "3"}, "rows", "3", "unknown key; known are radius, density, count"),
    (GAS | {"kind": '"fog"'}, "kind", "'fog'", "must be one of gas, rain, rack, ball"),
    ({"radius": "0.01"}, "kind", "'nothing'", "must be one of gas"),
    (GAS | {"low": "[0.0, 0.09, 0.0]"}, "low[1]", "0.09", "must be 0 to 0.08 m"),
    (GAS | {"high": "[0.5, 0.08, 0.08]"}, "high[0]", "0.5", "at most 0.4 m"),
    (
        RAIN | {"low": "[0.2, 0.0, 0.0]", "high": "[0.1, 0.08, 0.08]"},
        "high[0]",
        "0.1",
        "over low, 0.2",
    ),
    (RAIN | {"velocity": "[0.0, 0.0, -11.0]"}, "velocity", "(0.0, 0.0, -11.0)", "max_speed"),
    (BALL | {"velocity": "[11.0, 0.0, 0.0]"}, "velocity", "(11.0, 0.0, 0.0)", "max_speed"),
    (BALL | {"position": "[0.005, 0.04, 0.04]"}, "position", "0.005", "0.01 to 0.39 m along x"),
    (BALL | {"position": "[1e7, 0.04, 0.04]"}, "position[0]", "10000000.0", "1000000"),
    ({"kind": '"ball"', "radius": "0.01"}, "position", "nothing", "required (m, centre"),
    (RACK | {"rows": "12"}, "apex", "sphere 11", "within 0.01 to 0.07 m along y"),
    (RACK | {"gap": "-1e-5"}, "gap", "-1e-05", "greater than or equal to 0 (m, between"),
]


@each(("group", "key", "value", "allowed"), GROUP_NONSENSE)
def test_a_wrong_group_is_refused_by_name(tmp_path, group, key, value, allowed):
    top = {**SOUND, "dt": "2.5e-5"}
    # The second group, so that the index in the key is shown to count.
    first = {**BALL, "position": "[0.38, 0.02, 0.02]"}
    assert_refused(tmp_path, toml(top, first, group), f"spheres[1].{key}", value, allowed)


def test_overlapping_spheres_are_refused_by_name(tmp_path):
    near = {**BALL, "position": "[0.215, 0.04, 0.04]"}
    top = {**SOUND, "dt": "2.5e-5"}
    error = assert_refused(
        tmp_path, toml(top, BALL, near), "spheres[1].position", "sphere 1", "overlap sphere 0"
    )
    assert "they share 0.005 m" in str(error)


def test_too_many_spheres_in_all_are_refused(tmp_path):
    rack = {**RACK, "rows": "400"}
    top = {**SOUND, "dt": "2.5e-5"}
    assert_refused(tmp_path, toml(top, rack, rack), "spheres", "160400 spheres", "at most 100000")


def test_no_spheres_are_refused(tmp_path):
    assert_refused(tmp_path, toml(SOUND), "spheres", "nothing", "required")
    assert_refused(tmp_path, toml(SOUND | {"spheres": "[]"}), "spheres", "[]", "at least one")


def test_every_problem_is_named_at_once(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, toml({**SOUND, "dt": "-1.0"}, GAS | {"count": "-1", "size": "2"}))
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"dt", "spheres[0].count", "spheres[0].size"}


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"none\.toml: file = .*No such file"):
        load_scenario(tmp_path / "none.toml")


@pytest.mark.parametrize("content", [b"box = [", b"\xff\xfe", b"box = 1\nbox = 2\n"])
def test_a_file_that_is_not_toml_is_refused(tmp_path, content):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(ScenarioError, match=r"bad\.toml: file = .*is not TOML"):
        load_scenario(tmp_path / "bad.toml")


def test_at_least_three_scenarios_are_shipped():
    assert {"gas", "billiard", "rain"} <= {path.stem for path in SCENARIOS.glob("*.toml")}


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_sound(path):
    scenario = load_scenario(path)
    spheres = initial_spheres(scenario)
    assert len(spheres) >= 1000
    assert max_slabs(scenario) >= 8
    assert state_sha256(spheres) == state_sha256(initial_spheres(load_scenario(path)))


def test_another_seed_gives_another_state(tmp_path):
    top = {**SOUND, "dt": "2.5e-5"}
    one, other = (load(tmp_path, toml(top, GAS | {"seed": seed})) for seed in ("1", "2"))
    assert state_sha256(initial_spheres(one)) != state_sha256(initial_spheres(other))


def test_the_gas_has_the_speed_and_the_radii_that_the_file_asks_for():
    scenario = load_scenario(SCENARIOS / "gas.toml")
    spheres = initial_spheres(scenario)
    assert float((spheres.v**2).sum(axis=1).mean()) ** 0.5 == pytest.approx(1.0, rel=0.03)
    assert 0.012 <= spheres.radius.min() < 0.0121
    assert 0.0179 < spheres.radius.max() <= 0.018
    volume = 4.0 / 3.0 * 3.141592653589793 * spheres.radius**3
    assert spheres.mass == pytest.approx(1000.0 * volume)


def load(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "some.toml"
    path.write_text(text)
    return load_scenario(path)


def assert_refused(tmp_path: Path, text: str, key: str, value: str, allowed: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, text)
    lines = str(caught.value).splitlines()
    blamed = [line for line in lines if line.startswith(f"{tmp_path / 'some.toml'}: {key} = ")]
    assert len(blamed) == 1, lines
    assert value in blamed[0]
    assert allowed in blamed[0]
    assert isinstance(caught.value, SettingsError)
    return caught.value
