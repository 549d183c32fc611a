"""Rows: made of states, sorted, filtered, and cut to the width of a terminal."""

from sphtp_client.top.model import Observation, PlaceReport, Sample, read_status_untrusted
from sphtp_client.top.tables import VIEWS, TableRow, View, arranged, as_lines, fitting_columns
from tests.apps.top.samples import CHANNEL, channel, group, node, observed, state
from tests.cases import each

BY_NAME = {view.name: view for view in VIEWS}

BEFORE = state(
    node("ada"),
    channel(sent_bytes_total=1000, packets_sent_total=100),
    group("ada", steps_total=10, step_seconds_count=9, step_seconds_sum=1.0, waits={"bob": 1.0}),
    at=10.0,
)
NOW = state(
    node("ada"),
    channel(
        sent_bytes_total=5000, packets_sent_total=200, packets_lost_total=25, messages_waiting=3,
        lane0_messages_waiting=1, lane1_messages_waiting=2, lane1_waiting_bytes=900,
    ),
    group(
        "ada", "bob", steps_total=14, step_seconds_count=13, step_seconds_sum=3.0, exchanging=1,
        waits={"bob": 2.0},
    ),
    at=12.0,
)  # fmt: skip


def rows(name: str, *observations: Observation) -> list[dict[str, str]]:
    """Return the texts of a view by the titles of its columns; empty ones are left out."""
    view = BY_NAME[name]
    return [
        {
            column.title: cell.text
            for column, cell in zip(view.columns, row.cells, strict=True)
            if cell.text
        }
        for row in view.rows(observations)
    ]


def test_a_peer_has_the_sums_of_its_channels_and_the_pace_of_its_steps() -> None:
    assert rows("peers", observed(NOW, BEFORE)) == [
        {
            "peer": "ada", "state": "ok", "out": "2 kB", "in": "0 B", "waiting": "3", "unread": "0",
            "loss": "25 %", "steps/s": "2.0", "channels": "1", "knows": "0", "groups": "fluid",
            "kind": "client", "place": "here:1",
        }
    ]  # fmt: skip
    (first,) = rows("peers", observed(NOW))
    assert "out" not in first
    assert "steps/s" not in first


def test_a_client_that_a_server_tells_of_stands_once() -> None:
    clients = [{"id": 3, "name": "ada"}, {"id": 4, "name": "bob"}]
    status = {"id": 1, "state": "active", "clients": clients}
    told = observed(read_status_untrusted("tcp://a:1", 0.0, status))
    found = [(row["peer"], row["state"]) for row in rows("peers", told, observed(NOW))]
    assert found == [("0x00000001", "ok"), ("ada", "ok"), ("bob", "ok")]


def test_a_place_that_does_not_answer_is_a_row() -> None:
    dead = Observation(PlaceReport(place="here:9", at=0.0, error="connection refused"))
    (row,) = rows("peers", dead)
    assert (row["peer"], row["state"]) == ("(here:9)", "no answer")


def test_channels_lanes_and_groups_have_their_figures() -> None:
    seen = observed(NOW, BEFORE)
    (one,) = rows("channels", seen)
    assert (one["from"], one["to"], one["waiting"], one["out"]) == ("ada", "bob", "3", "2 kB")
    lanes = {row["lane"]: row["waiting"] for row in rows("lanes", seen)}
    assert lanes == {"0": "1", "1": "2"}
    (one,) = rows("groups", seen)
    assert (one["step"], one["steps/s"], one["time"]) == ("14", "2.0", "500 ms")
    assert (one["waits"], one["waits for"], one["mostly for"]) == ("50 %", "bob", "bob")


def test_streams_have_sources_and_subscriptions() -> None:
    at = {"node": "ada", "topics": "density"}
    source = [
        Sample("sphtp_source_messages_sent_total", at, 9),
        *(
            Sample(f"sphtp_source_receiver_{figure}", {**at, "peer": peer, "receiver": peer}, value)
            for peer, figure, value in (
                ("bob", "behind_datagrams", 4),
                ("cy", "behind_datagrams", 40),
                ("bob", "room_bytes", 2000),
            )
        ),
    ]
    place = {"node": "bob", "peer": "ada", "topic": "density", "receiver": "0x1"}
    subscription = [
        Sample("sphtp_subscription_messages_lost_total", place, 2),
        Sample("sphtp_subscription_datagrams_missing", place, 1),
    ]
    one, other = rows("streams", observed(state(source, subscription)))
    assert (one["from"], one["to"], one["behind"], one["room"]) == ("ada", "cy +1", "40", "2 kB")
    assert (other["from"], other["to"]) == ("ada", "at bob")
    assert (other["lost"], other["missing"]) == ("2", "1")


def many() -> list[TableRow]:
    view = BY_NAME["channels"]
    samples = [
        channel({**CHANNEL, "peer": peer, "channel": f"0x{number}"}, messages_waiting=number)
        for number, peer in enumerate(("eve", "bob", "cy"))
    ]
    return [*view.rows([observed(state(*samples))])]


def peers(found: list[TableRow]) -> list[str]:
    return [row.cells[1].text for row in found]


def test_rows_are_sorted_by_value_and_those_without_one_are_last() -> None:
    channels = BY_NAME["channels"]
    waiting, to, out = (channels.index(title) for title in ("waiting", "to", "out"))
    assert peers(arranged(many(), waiting, descends=True)) == ["cy", "bob", "eve"]
    assert peers(arranged(many(), to, descends=False)) == ["bob", "cy", "eve"]
    for descends in (False, True):
        assert sorted(peers(arranged(many(), out, descends=descends))) == ["bob", "cy", "eve"]


def test_a_filter_looks_into_all_cells() -> None:
    assert peers(arranged(many(), 0, descends=False, wanted="BOB")) == ["bob"]
    assert peers(arranged(many(), 0, descends=False, wanted="nobody")) == []


@each("view", VIEWS)
def test_columns_of_low_ranks_are_the_last_to_go(view: View) -> None:
    seen = [*view.rows([observed(NOW, BEFORE)])]
    all_columns = [*range(len(view.columns))]
    necessary = [at for at in all_columns if view.columns[at].rank == 0]
    assert fitting_columns(view, seen, 1000) == all_columns
    assert fitting_columns(view, seen, 10) == necessary
    sizes = [len(fitting_columns(view, seen, width)) for width in range(10, 200, 10)]
    assert sizes == sorted(sizes)
    titles = [column.title for column in view.columns]
    assert len({*titles}) == len(titles)
    assert view.sorted_by in titles


def test_lines_for_a_pipe_are_aligned() -> None:
    header, *lines = as_lines(BY_NAME["channels"], many())
    assert header.split()[:3] == ["from", "to", "waiting"]
    assert {line.index(peer) for line, peer in zip(lines, ("eve", "bob", "cy"), strict=True)} == {
        header.index("to")
    }
