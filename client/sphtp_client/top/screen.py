"""The screen of ``sphtp top``, by Textual: views as tabs, a table, and the causes below it.

A task for each place reads it, so that a place that does not reply delays no other. New reports are
shown at the next tick. The cursor stays on its row when rows appear, vanish or move.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from sphtp.shell.lifetime import ending
from sphtp_client.program import ExitStatus
from sphtp_client.top.causes import Cause, find_causes
from sphtp_client.top.model import Observation
from sphtp_client.top.places import SERVERS_ALONE, PlaceReader, are_servers_alone
from sphtp_client.top.tables import VIEWS, TableRow, View, arranged, fitting_columns

MOST_ROWS: Final = 500
"""The most rows of a table. Other rows can be shown by a filter or another order."""

MOST_REASONS: Final = 8

MOST_SHARE: Final = 0.05
"""The share of the time for reading a place, above which pauses grow up to ``LONGEST_PAUSE``.

A node with 200 channels needs 0.1 s.
"""

LONGEST_PAUSE: Final = 10.0

PAUSE_PER_TIME: Final = 4.0
"""The least pause after the drawing of a table, as a multiple of its duration."""

NOTHING_WAITS: Final = "Nothing waits."

UP, DOWN = "\u25b2", "\u25bc"


class TopApp(App[None]):
    """The screen, which reads each place every ``interval`` seconds, a slow one less often."""

    TITLE = "sphtp top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; }
    #table { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #filter.shown { display: block; }
    #causes { height: auto; max-height: 10; border-top: solid $foreground 50%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit"),
        Binding("s", "sort(1)", "sort by next"),
        Binding("S", "sort(-1)", "by previous", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "clear", "all", show=False),
        Binding("p", "pause", "pause"),
        Binding("space", "look", "now", show=False),
        *(Binding(f"{at}", f"view({at})", view.name) for at, view in enumerate(VIEWS, 1)),
    ]

    def __init__(self, readers: Sequence[PlaceReader], interval: float) -> None:
        super().__init__()
        self.observations: dict[str, Observation] = {}
        """The last observation of each place."""
        self._readers = readers
        self._interval = interval
        self._view = VIEWS[0]
        # By view: the column by which its rows are sorted, and True if the largest comes first.
        self._order = {view.name: (view.index(view.sorted_by), view.descends) for view in VIEWS}
        self._wanted = ""
        self._rows: dict[str, TableRow] = {}
        self._titles: list[str] = []
        self._is_paused = False
        self._width = 0
        # Animations would distract, and take time.
        self.animation_level = "none"

    def compose(self) -> ComposeResult:
        """Yield the widgets, from top to bottom."""
        yield Static(id="summary", markup=False)
        yield Tabs(*(Tab(f"{at} {view.name}", id=view.name) for at, view in enumerate(VIEWS, 1)))
        table: DataTable[Text] = DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield table
        yield Static(id="causes", markup=False)
        yield Input(id="filter", placeholder="rows with this text")
        yield Footer()

    def on_mount(self) -> None:
        """Start to read the places, and handle signals."""
        for number in ending():
            # Without the handler, the terminal would stay in the mode of the screen.
            asyncio.get_running_loop().add_signal_handler(number, self._end)
        self.query_one(Tabs).can_focus = False
        self.query_one(DataTable).focus()
        for reader in self._readers:
            self.run_worker(self._follow(reader))
        self._tick()

    def _end(self) -> None:
        self.exit(return_code=ExitStatus.TERMINATED.code)

    async def _follow(self, reader: PlaceReader) -> None:
        pause = await self._read(reader)
        self._show()
        while True:
            await asyncio.sleep(pause)
            pause = await self._read(reader)

    async def _read(self, reader: PlaceReader) -> float:
        """Read a place; return the seconds until the next reading."""
        began = time.monotonic()
        state = await reader.read()
        took = 0.0 if state.error else time.monotonic() - began
        known = self.observations.get(reader.place)
        seen = Observation(state) if known is None else known.followed_by(state)
        self.observations[reader.place] = seen
        return max(self._interval, min(took / MOST_SHARE, LONGEST_PAUSE))

    def _tick(self) -> None:
        began = time.monotonic()
        if not self._is_paused:
            self._show()
        # With tens of thousands of channels a table takes a second; keys work during the pauses.
        self.set_timer(max(self._interval, PAUSE_PER_TIME * (time.monotonic() - began)), self._tick)

    # Drawing

    def _show(self) -> None:
        observed = [
            self.observations[reader.place]
            for reader in self._readers
            if reader.place in self.observations
        ]
        column, descends = self._order[self._view.name]
        rows = arranged(self._view.rows(observed), column, descends=descends, wanted=self._wanted)
        shown = rows[:MOST_ROWS]
        self._show_table(self._view, shown, column, descends=descends)
        self._show_causes(find_causes(observed))
        self._show_summary(observed, len(shown), len(rows))

    def _show_table(
        self, view: View, rows: Sequence[TableRow], column: int, *, descends: bool
    ) -> None:
        table = self.query_one(DataTable)
        places = fitting_columns(view, rows, self._width - 2)
        arrow = DOWN if descends else UP
        titles = [
            f"{view.columns[at].title} {arrow}" if at == column else view.columns[at].title
            for at in places
        ]
        selected, offset = self._selected(), table.scroll_offset
        if titles != self._titles:
            table.clear(columns=True)
            for title in titles:
                table.add_column(Text(title))
            self._titles = titles
        else:
            table.clear()
        self._rows = {row.id: row for row in rows}
        for row in rows:
            table.add_row(*(Text(row.cells[at].text) for at in places), key=row.id)
        if selected in self._rows:
            table.move_cursor(row=table.get_row_index(selected), scroll=False)
            table.scroll_to(offset.x, offset.y, animate=False)

    def _selected(self) -> str:
        table = self.query_one(DataTable)
        if not table.row_count:
            return ""
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""

    def _show_causes(self, causes: Sequence[Cause]) -> None:
        """Show the causes; those that concern the row of the cursor come first."""
        row = self._rows.get(self._selected())
        about = frozenset(row.about if row is not None else ())
        own = [cause for cause in causes if about & frozenset(cause.about)]
        others = [cause for cause in causes if cause not in own]
        lines = [f"> {cause.text}" for cause in own] + [f"  {cause.text}" for cause in others]
        if len(lines) > MOST_REASONS:
            lines[MOST_REASONS:] = [f"  ... and {len(lines) - MOST_REASONS} more"]
        self.query_one("#causes", Static).update("\n".join(lines) or NOTHING_WAITS)

    def _show_summary(self, observed: Sequence[Observation], shown: int, rows: int) -> None:
        silent = sum(bool(one.now.error) for one in observed)
        words = [f"{len(observed) - silent} of {len(self._readers)} places answer"]
        words.append(f"{rows} rows" if shown == rows else f"{shown} of {rows} rows")
        if are_servers_alone(self._readers):
            words.append(SERVERS_ALONE)
        if self._wanted:
            words.append(f"filter {self._wanted!r}")
        if self._is_paused:
            words.append("paused")
        self.query_one("#summary", Static).update(", ".join(words))

    # Keys and other input

    def on_resize(self, event: events.Resize) -> None:
        """Choose the columns that fit into the new width."""
        self._width = event.size.width
        self._show()

    def action_view(self, number: int) -> None:
        """Show the view with a number, from 1 on."""
        self.query_one(Tabs).active = VIEWS[number - 1].name

    @on(Tabs.TabActivated)
    def _change_view(self, event: Tabs.TabActivated) -> None:
        self._view = next(view for view in VIEWS if view.name == event.tab.id)
        self._show()

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        column, _ = self._order[self._view.name]
        self._sort_by((column + step) % len(self._view.columns))

    def action_reverse(self) -> None:
        """Reverse the order of the rows."""
        column, descends = self._order[self._view.name]
        self._order[self._view.name] = (column, not descends)
        self._show()

    @on(DataTable.HeaderSelected)
    def _sort_by_header(self, event: DataTable.HeaderSelected) -> None:
        title = self._titles[event.column_index].removesuffix(UP).removesuffix(DOWN).rstrip()
        column = self._view.index(title)
        if column == self._order[self._view.name][0]:
            self.action_reverse()
        else:
            self._sort_by(column)

    def _sort_by(self, column: int) -> None:
        # Numbers are sorted with the largest first, names in alphabetical order.
        is_number = any(
            isinstance(row.cells[column].value, int | float) for row in self._rows.values()
        )
        self._order[self._view.name] = (column, is_number)
        self._show()

    def action_filter(self) -> None:
        """Show the input of the filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_clear(self) -> None:
        """Clear the filter, and show all rows."""
        self.query_one("#filter", Input).value = ""
        self._end_filter()

    @on(Input.Changed)
    def _filter_by(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._show()

    @on(Input.Submitted)
    def _end_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one(DataTable).focus()

    def action_look(self) -> None:
        """Read all places now."""
        self.run_worker(self._look())

    async def _look(self) -> None:
        await asyncio.gather(*(self._read(reader) for reader in self._readers))
        self._show()

    def action_pause(self) -> None:
        """Pause the updates of the screen, or resume them."""
        self._is_paused = not self._is_paused
        self._show()

    @on(DataTable.RowHighlighted)
    def _explain_row(self) -> None:
        self._show_causes(find_causes([*self.observations.values()]))
