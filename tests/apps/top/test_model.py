"""The state that samples and the status of a server tell."""

import pytest

from sphtp_client.top.model import (
    SIMULATION,
    LaneReport,
    PlaceReport,
    Sample,
    growth,
    read_samples_untrusted,
    read_status_untrusted,
)
from tests.apps.top.samples import CHANNEL, channel, group, node, observed, state
from tests.cases import each


def test_a_channel_has_the_figures_of_its_labels() -> None:
    other = {**CHANNEL, "channel": "0x00000002"}
    one, two = state(
        channel(messages_waiting=3, by_window=1, lane1_messages_waiting=2, lane0_waiting_bytes=70),
        channel(other, messages_waiting=4, packets_lost_total=9, packets_lost_spuriously_total=2),
    ).channels
    assert (one.waiting, one.blocked, two.waiting, two.packets_lost) == (3, "window", 4, 7.0)
    assert one.lanes == (
        LaneReport(lane="0", messages=0, size=70),
        LaneReport(lane="1", messages=2, size=0),
    )
    assert (one.round_trip, two.blocked, two.lanes) == (None, "", ())


def test_a_source_has_its_receivers() -> None:
    at = {"node": "ada", "topics": "density"}
    receiver = {**at, "peer": "bob", "receiver": "0x1"}
    found = state(
        [
            Sample("sphtp_source_receivers", at, 1),
            Sample("sphtp_source_receivers_left_behind_total", at, 2),
            Sample("sphtp_source_receiver_behind_datagrams", receiver, 5),
            Sample("sphtp_source_receiver_room_bytes", receiver, 0),
        ]
    )
    (source,) = found.sources
    (one,) = source.receivers
    assert (source.left_behind, one.peer, one.behind, one.room) == (2.0, "bob", 5, 0)


def test_members_of_groups_and_slabs_of_a_simulation_step_alike() -> None:
    wait = {"node": "slab-0", "peer": "slab-1"}
    slab = [
        Sample("sphtp_simulation_steps_total", {"node": "slab-0"}, 40),
        Sample("sphtp_simulation_wait_seconds_sum", wait, 1.5),
        Sample("sphtp_simulation_wait_seconds_bucket", {**wait, "le": "1"}, 9),
    ]
    member, simulation = state(
        group("ada", "bob", steps_total=6, exchanging=1, waits={"bob": 0.5}), slab
    ).groups
    assert (member.step, member.is_exchanging, member.missing) == (6, True, ("bob",))
    assert member.waits == {"bob": 0.5}
    assert (simulation.group, simulation.step, simulation.is_exchanging) == (SIMULATION, 40, None)
    assert simulation.waits == {"slab-1": 1.5}


def test_nodes_have_their_state_and_their_clock() -> None:
    clock = [Sample("sphtp_clock_error_seconds", {"node": "ada"}, 0.002)]
    server = [
        Sample("sphtp_server_state", {"server": "0x1", "state": "active"}, 1),
        Sample("sphtp_server_clients", {"server": "0x1"}, 3),
    ]
    bare = [Sample("sphtp_node_datagrams_sent_total", {"node": "10.0.0.1:4000"}, 1)]
    nodes = state(node("ada", peers=2), clock, server, bare).nodes
    assert [(it.name, it.kind, it.state, it.known) for it in nodes] == [
        ("0x1", "server", "active", 3),
        ("ada", "client", "established", 2),
        ("10.0.0.1:4000", "node", "", 0),
    ]
    assert nodes[1].clock_error == 0.002


@each(
    "sample",
    [
        Sample("process_cpu_seconds_total", {}, 1),
        Sample("sphtp_moon_phase", {"node": "ada"}, 1),
        Sample("sphtp_channel_messages_waiting", CHANNEL, float("nan")),
        Sample("sphtp_channel_messages_waiting", CHANNEL, float("inf")),
        # Sums and shares of such values would be infinite.
        Sample("sphtp_channel_messages_waiting", CHANNEL, 1.7e308),
        Sample("sphtp_channel_packets_sent_total", CHANNEL, -1e-308),
    ],
)
def test_what_is_not_known_or_no_amount_is_left_out(sample: Sample) -> None:
    assert read_samples_untrusted("here", 0.0, [sample]) == PlaceReport(place="here", at=0.0)


def test_names_steer_no_terminal() -> None:
    (found,) = state(channel({**CHANNEL, "peer": "\x1b[2Jbob"}, messages_waiting=1)).channels
    assert found.peer == r"\u001b[2Jbob"


def test_the_status_of_a_server_tells_servers_and_clients() -> None:
    status = {
        "id": 1,
        "state": "active",
        "view": {"members": [{"id": 1, "state": "active"}, {"id": 2, "state": "joining"}, 7]},
        "clients": [
            {"id": 3, "name": "ada", "groups": ["fluid"], "topics": 2},
            {"id": 4, "name": "", "groups": None, "topics": 10**400},
            {"id": True},
            {"id": 1 << 64},
            {"name": "nobody"},
        ],
    }
    nodes = read_status_untrusted("tcp://a:1", 0.0, status).nodes
    assert [(it.name, it.kind, it.state) for it in nodes] == [
        ("0x00000001", "server", "active"),
        ("0x00000002", "server", "joining"),
        ("ada", "client", "registered"),
        ("0x00000004", "client", "registered"),
    ]
    assert (nodes[0].known, nodes[2].groups) == (2, ("fluid",))
    assert [it.topics for it in nodes] == [0, 0, 2, 0]


@pytest.mark.parametrize("status", [{}, {"clients": 7, "view": []}, {"id": "x", "view": {}}])
def test_a_status_that_tells_nothing_is_empty(status: dict[str, object]) -> None:
    assert read_status_untrusted("here", 0.0, status).nodes == ()


def test_counters_grow_between_two_states_and_not_over_a_new_beginning() -> None:
    before = state(channel(messages_sent_total=10), at=1.0)
    now = state(channel(messages_sent_total=15), at=3.0)
    one = observed(now, before)
    earlier = one.earlier("channels")
    assert one.seconds == 2.0
    assert growth(now.channels[0], earlier[now.channels[0].key], "messages_sent") == 5
    assert growth(before.channels[0], now.channels[0], "messages_sent") is None
    assert growth(now.channels[0], None, "messages_sent") is None
