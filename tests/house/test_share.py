"""The files for systemd and containers name options and signals that there are."""

import re
import signal

from sphtp_server.settings import SOURCES, ServerSettings
from tests.house.pages import ROOT

SHARE = ROOT / "share"
VARIABLES = {SOURCES.variable(name) for name in ServerSettings.model_fields}
VARIABLE = re.compile(r"\bSPHTP_SERVER_\w+")


def test_variables_are_those_of_settings() -> None:
    for file in (SHARE / "systemd/sphtp-server.service", SHARE / "container/Containerfile"):
        named = set(VARIABLE.findall(file.read_text(encoding="utf-8")))
        assert named
        assert named <= VARIABLES, file


def test_both_stop_a_server_by_the_signal_that_drains_it() -> None:
    unit = (SHARE / "systemd/sphtp-server.service").read_text(encoding="utf-8")
    image = (SHARE / "container/Containerfile").read_text(encoding="utf-8")
    stop = re.findall(r"^(?:KillSignal=|STOPSIGNAL )(\w+)$", f"{unit}\n{image}", re.M)
    assert stop == [signal.SIGUSR1.name] * 2
    longest = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    assert longest is not None
    assert int(longest[1]) > ServerSettings().drain_time
