"""The screen, driven by its keys without a terminal: what it shows of places that come and go."""

import asyncio
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, Tabs

from sphtp_client.top.model import PlaceReport
from sphtp_client.top.places import PageReader
from sphtp_client.top.screen import NOTHING_WAITS, TopApp
from sphtp_client.top.tables import VIEWS
from tests.apps.top.samples import CHANNEL, channel, group, node, state

NEVER = 3600.0

# A third of a second of a processor each.
beside = pytest.mark.soak

TO_BOB = {**CHANNEL, "peer": "bob", "channel": "0x1"}
TO_CY = {**CHANNEL, "peer": "cy", "channel": "0x2"}
ADA = state(
    node("ada"),
    channel(TO_BOB, messages_waiting=4, by_credit=1, lane0_messages_waiting=4),
    channel(TO_CY, messages_waiting=2, lane0_messages_waiting=2),
    group("ada", "bob", steps_total=7, exchanging=1),
    place="ada:1",
)
BOB = state(node("bob"), place="bob:1")
DEAD = PlaceReport(place="bob:1", at=1.0, error="connection refused")


class ScriptedPlace:
    """Tells one state after the other, and the last one again and again."""

    def __init__(self, *states: PlaceReport) -> None:
        self.place = states[0].place
        self.reads = 0
        self._states = states

    async def read(self) -> PlaceReport:
        await asyncio.sleep(0)
        self.reads += 1
        return self._states[min(self.reads, len(self._states)) - 1]


class Screen:
    """The screen of a test, and what it shows."""

    def __init__(self, app: TopApp, pilot: Pilot[None], places: tuple[ScriptedPlace, ...]) -> None:
        self.app = app
        self.pilot = pilot
        self._places = places

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def look(self) -> None:
        """Let all places be read again."""
        reads = [place.reads for place in self._places]
        await self.press("space")
        async with asyncio.timeout(10):
            while any(it.reads <= read for it, read in zip(self._places, reads, strict=True)):
                await self.pilot.pause()
        await self.pilot.pause()

    def rows(self) -> list[dict[str, str]]:
        """Return the texts of the table by the titles of its columns."""
        table: DataTable[Any] = self.app.query_one(DataTable)
        titles = [str(column.label) for column in table.ordered_columns]
        return [
            dict(zip(titles, map(str, table.get_row_at(at)), strict=True))
            for at in range(table.row_count)
        ]

    def column(self, title: str) -> list[str]:
        return [row[title] for row in self.rows()]

    async def click(self, title: str) -> None:
        """Click on the title of a column."""
        table: DataTable[Any] = self.app.query_one(DataTable)
        place = 1
        for column in table.ordered_columns:
            if str(column.label).startswith(title):
                break
            place += column.get_render_width(table)
        await self.pilot.click(DataTable, offset=(place, 0))
        await self.pilot.pause()

    def text(self, name: str) -> str:
        return str(self.app.query_one(f"#{name}", Static).render())


def shown(
    *places: ScriptedPlace, width: int = 150, height: int = 30
) -> Callable[[Callable[[Screen], Awaitable[None]]], None]:
    """Return a decorator that runs a test at once, on a screen that shows these places."""

    def run(test: Callable[[Screen], Awaitable[None]]) -> None:
        async def main() -> None:
            app = TopApp(places, NEVER)
            async with app.run_test(size=(width, height)) as pilot:
                async with asyncio.timeout(20):
                    while any(not place.reads for place in places):
                        await pilot.pause()
                    await pilot.pause()
                    await test(Screen(app, pilot, places))

        asyncio.run(main())

    return run


def test_keys_choose_views_and_each_has_its_rows() -> None:
    @shown(ScriptedPlace(ADA), ScriptedPlace(BOB))
    async def _(screen: Screen) -> None:
        assert screen.column("peer ▲") == ["ada", "bob"]
        assert screen.text("summary") == "2 of 2 places answer, 2 rows"
        expected = {
            "channels": ("to", ["bob", "cy"]),
            "lanes": ("waiting ▼", ["4", "2"]),
            "streams": ("topic", []),
            "groups": ("waits for", ["bob"]),
            "peers": ("state", ["ok", "ok"]),
        }
        for number, view in [*[*enumerate(VIEWS, 1)][1:], (1, VIEWS[0])]:
            await screen.press(str(number))
            assert screen.app.query_one(Tabs).active == view.name
            title, texts = expected[view.name]
            assert screen.column(title) == texts if texts else screen.rows() == []


@beside
def test_rows_are_sorted_by_a_key_or_by_a_click_on_a_title() -> None:
    @shown(ScriptedPlace(ADA))
    async def _(screen: Screen) -> None:
        await screen.press("2")
        assert screen.column("waiting ▼") == ["4", "2"]
        await screen.press("r")
        assert screen.column("waiting ▲") == ["2", "4"]
        await screen.press("S")
        assert screen.column("to ▲") == ["bob", "cy"]
        await screen.press("r", "s", "s")
        assert screen.column("held by ▲") == ["credit", ""]
        for expected in (["4", "2"], ["2", "4"]):
            await screen.click("waiting")
            (title,) = [it for it in screen.rows()[0] if it.startswith("waiting")]
            assert screen.column(title) == expected


@beside
def test_a_filter_keeps_the_rows_with_its_text() -> None:
    @shown(ScriptedPlace(ADA))
    async def _(screen: Screen) -> None:
        await screen.press("2", "slash", "c", "y")
        assert screen.column("to") == ["cy"]
        assert "filter 'cy'" in screen.text("summary")
        # Keys are letters of the text until it is complete.
        await screen.press("enter")
        assert not screen.app.query_one("#filter", Input).has_class("shown")
        await screen.press("s")
        assert screen.column("to") == ["cy"]
        await screen.press("escape")
        assert sorted(screen.column("to")) == ["bob", "cy"]


@beside
def test_reasons_stand_below_and_those_of_the_row_first() -> None:
    @shown(ScriptedPlace(ADA), ScriptedPlace(BOB))
    async def _(screen: Screen) -> None:
        await screen.press("2", "down")
        first, *_ = screen.text("causes").splitlines()
        assert first.startswith("> 4 messages of ada for bob wait: the credit of bob is used up")

    @shown(ScriptedPlace(BOB))
    async def _(screen: Screen) -> None:
        await asyncio.sleep(0)
        assert screen.text("causes") == NOTHING_WAITS


@beside
def test_a_place_that_dies_says_so_and_comes_back() -> None:
    @shown(ScriptedPlace(ADA), ScriptedPlace(BOB, DEAD, BOB))
    async def _(screen: Screen) -> None:
        await screen.look()
        assert screen.column("peer ▲") == ["(bob:1)", "ada"]
        assert screen.column("state") == ["no answer", "ok"]
        assert screen.text("summary").startswith("1 of 2 places answer")
        assert "bob:1 has not answered for 1 s: connection refused." in screen.text("causes")
        await screen.look()
        assert screen.column("peer ▲") == ["ada", "bob"]
        assert screen.text("summary").startswith("2 of 2 places answer")


@beside
def test_the_cursor_stays_on_its_row_when_others_come_and_go() -> None:
    fewer = state(node("ada"), channel(TO_CY, messages_waiting=9), place="ada:1")

    @shown(ScriptedPlace(ADA, fewer, ADA))
    async def _(screen: Screen) -> None:
        await screen.press("2", "down")
        table: DataTable[Any] = screen.app.query_one(DataTable)
        for expected in (0, 1):
            await screen.look()
            assert table.cursor_row == expected
            assert screen.column("to")[table.cursor_row] == "cy"


@beside
def test_a_pause_lets_what_is_shown_stand_still() -> None:
    @shown(ScriptedPlace(ADA))
    async def _(screen: Screen) -> None:
        await screen.press("p")
        assert "paused" in screen.text("summary")
        await screen.press("p")
        assert "paused" not in screen.text("summary")


@beside
def test_a_narrow_terminal_shows_the_columns_that_matter() -> None:
    @shown(ScriptedPlace(ADA), width=40, height=12)
    async def _(screen: Screen) -> None:
        await screen.press("2")
        titles = [*screen.rows()[0]]
        assert titles[:3] == ["from", "to", "waiting ▼"]
        await screen.pilot.resize_terminal(200, 30)
        await screen.pilot.pause()
        assert {*titles} < {*screen.rows()[0]}
        assert "window" in screen.rows()[0]


@beside
def test_without_colour_it_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    @shown(ScriptedPlace(ADA), ScriptedPlace(DEAD))
    async def _(screen: Screen) -> None:
        assert screen.app.no_color
        assert screen.column("state") == ["no answer", "ok"]
        # The picture of a terminal in SVG: what fills it, without the text of the frame around it.
        fills = re.findall(r'<rect fill="#(\w{6})"', screen.app.export_screenshot())
        assert fills
        assert all(fill[:2] == fill[2:4] == fill[4:] for fill in fills)


@beside
def test_q_ends_it() -> None:
    @shown(ScriptedPlace(ADA))
    async def _(screen: Screen) -> None:
        await screen.press("q")
        assert screen.app.return_code == 0


@beside
def test_a_thousand_channels_are_cut_to_those_that_come_first() -> None:
    many = [
        channel({**CHANNEL, "channel": f"0x{number:x}"}, messages_waiting=number)
        for number in range(1000)
    ]

    @shown(ScriptedPlace(state(*many, place="ada:1")))
    async def _(screen: Screen) -> None:
        await screen.press("2")
        assert screen.column("waiting ▼")[:2] == ["999", "998"]
        assert screen.text("summary").endswith("500 of 1000 rows")


@beside
def test_a_server_that_is_killed_is_missed_and_found_again_when_it_is_started_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    reader = PageReader("127.0.0.1", port, 10.0)

    async def start() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sphtp", "server", "--new", "--pub-port=0", "--no-announce"),
            *(f"--metrics={port}", "--log-format=json"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        while b'"started"' not in (line := await process.stdout.readline()):
            assert line, "it has ended"
        return process

    async def main() -> None:
        app = TopApp([reader], 0.05)
        async with app.run_test(size=(120, 30)) as pilot, asyncio.timeout(60):

            async def until(text: str) -> None:
                screen = Screen(app, pilot, ())
                while text not in str(screen.rows()) + screen.text("causes"):  # noqa: ASYNC110 # it changes by itself
                    await asyncio.sleep(0.02)

            await until("connection refused")
            for _ in range(2):
                process = await start()
                await until("'state': 'ok'")
                process.kill()
                await process.wait()
                await until(f"(127.0.0.1:{port})")
                await until("connection refused")

    asyncio.run(main())
