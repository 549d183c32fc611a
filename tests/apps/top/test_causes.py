"""Why something waits: a table of numbers, each with its sentence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sphtp_client.top.causes import (
    Cause,
    find_causes,
    of_node,
    of_source,
    of_subscription,
)
from sphtp_client.top.model import (
    NodeReport,
    Observation,
    PlaceReport,
    ReceiverReport,
    SourceReport,
    SubscriptionReport,
)
from tests.apps.top.samples import CHANNEL, channel, group, observed, state
from tests.cases import each

WAITING = {"messages_waiting": 9, "window_bytes": 64_000, "in_flight_bytes": 63_500}
SOURCE = SourceReport(node="ada", topics="density", waiting=50_000)
SUBSCRIPTION = SubscriptionReport(node="bob", peer="ada", topic="density", receiver="1")


def texts(causes: Sequence[Cause]) -> list[str]:
    return [cause.text for cause in causes]


CHANNELS: dict[str, tuple[Any, list[str]]] = {
    "nothing waits": ({"messages_waiting": 0}, []),
    "messages are on the way, as always": (WAITING, []),
    "the receiver does not read": (
        {**WAITING, "by_credit": 1},
        [
            ("9 messages of ada for bob wait: the credit of bob is used up: its program reads too "
            "slowly, or not at all.")
        ],
    ),
    "a full window on a lossy path": (
        {**WAITING, "by_window": 1, "round_trip_seconds": 0.08, "loss_ratio": 0.031},
        [
            ("9 messages of ada for bob wait: the congestion window is full: 63.5 kB of 64 kB are "
            "on the way, the round trip takes 80 ms, 3.1 % of the packets are lost.")
        ],
    ),
    "pacing": (
        {**WAITING, "by_pacing": 1, "round_trip_seconds": 0.0005},
        [
            ("9 messages of ada for bob wait: pacing spreads the packets over the round trip, the "
            "round trip takes 500 us.")
        ],
    ),
    "packet numbers": (
        {"messages_waiting": 1, "by_sequences": 1},
        [
            ("1 message of ada for bob wait: so many packets are on the way that their numbers "
            "would repeat.")
        ],
    ),
    "a lane": (
        {
            "messages_waiting": 9, "by_lane": 1, "lane0_messages_waiting": 1,
            "lane1_messages_waiting": 8, "lane1_waiting_bytes": 9000,
        },
        [
            ("9 messages of ada for bob wait: the oldest message of a lane is not acknowledged, "
            "and too many came after it; in lane 1 8 messages.")
        ],
    ),
    "the path is probed": (
        {"probes_unanswered": 3},
        [
            ("bob has not answered 3 probes of ada: the path is being probed; it is cut, or bob "
            "stands still.")
        ],
    ),
    "the program here does not read": (
        {"messages_unread": 500},
        ["ada has not read 500 messages of bob: its program is a slow reader."],
    ),
    "a few messages that are about to be read": ({"messages_unread": 5}, []),
    "a limit of a later version": ({**WAITING, "by_moon": 1}, []),
}  # fmt: skip


@each("case", CHANNELS)
def test_a_channel_says_why_it_waits(case: str) -> None:
    figures, expected = CHANNELS[case]
    assert texts(find_causes([observed(state(channel(**figures)))])) == expected


def test_channels_of_a_service_are_told_apart() -> None:
    (cause,) = find_causes(
        [observed(state(channel({**CHANNEL, "service": "group"}, probes_unanswered=1)))]
    )
    assert cause.text.startswith("bob has not answered 1 probe of ada (group)")
    assert cause.about == ("ada", "bob")


def receiver(peer: str, room: int | None, behind: int = 0) -> ReceiverReport:
    return ReceiverReport(peer=peer, receiver="1", behind=behind, room=room)


@each(
    ("source", "expected"),
    [
        (replace(SOURCE, waiting=0), []),
        (SOURCE, ["50 kB of density of ada wait for its data rate."]),
        (
            replace(SOURCE, receivers=(receiver("bob", 90_000), receiver("cy", 100, 412))),
            [
                (
                    "50 kB of density of ada wait: cy has no room, 412 datagrams behind: its "
                    "reader is slow."
                )
            ],
        ),
        (
            replace(SOURCE, repairs_waiting=20, receivers=(receiver("bob", None),)),
            ["50 kB of density of ada wait: 20 repairs have to leave first."],
        ),
        (
            replace(SOURCE, waiting=0, repairs_waiting=1),
            ["1 repair of density of ada wait for the repair rate."],
        ),
    ],
)
def test_a_source_says_for_whom_it_waits(source: SourceReport, expected: list[str]) -> None:
    assert texts([*of_source(source)]) == expected


def test_a_source_says_whom_it_left_behind_since() -> None:
    calm = replace(SOURCE, waiting=0)
    assert texts([*of_source(replace(calm, left_behind=2), replace(calm, left_behind=1))]) == [
        "density of ada goes on without 1 receiver: too slow."
    ]
    assert [*of_source(replace(calm, left_behind=2))] == []


def test_a_subscription_says_what_is_missing_and_lost() -> None:
    held = replace(SUBSCRIPTION, waiting=12, missing=1, lost=3)
    assert texts([*of_subscription(held, SUBSCRIPTION)]) == [
        "12 messages of density of ada wait at bob: 1 datagram before them are missing.",
        "bob has lost 3 messages of density of ada.",
    ]
    assert [*of_subscription(replace(held, missing=0), held)] == []


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (NodeReport(name="ada", kind="client", state="established"), []),
        (NodeReport(name="0x7", kind="node"), []),
        (
            NodeReport(name="0x9", kind="server", state="joining"),
            ["server 0x9 is joining: it admits no new client."],
        ),
        (
            NodeReport(name="ada", kind="client", state="suspended"),
            ["client ada is suspended: it finds no new peer."],
        ),
    ],
)
def test_a_node_says_why_it_serves_nobody(node: NodeReport, expected: list[str]) -> None:
    assert texts([*of_node(node)]) == expected


def test_a_place_says_for_how_long_it_has_not_answered() -> None:
    alive = state(channel(messages_waiting=0), at=10.0)
    dead = PlaceReport(place="here:1", at=12.0, error="connection refused")
    first = Observation(alive).followed_by(dead)
    assert texts(find_causes([first])) == ["here:1 has not answered for 2 s: connection refused."]
    later = first.followed_by(replace(dead, at=25.0))
    assert texts(find_causes([later])) == ["here:1 has not answered for 15 s: connection refused."]
    back = later.followed_by(state(channel(messages_waiting=0), at=26.0))
    assert find_causes([back]) == []
    assert texts(find_causes([Observation(dead)])) == [
        "here:1 has not answered: connection refused."
    ]


def standing(*members: object) -> Observation:
    """Return what is observed of a step in which nothing has happened for a second."""
    return observed(state(*members, at=1.0), state(*members, at=0.0))


@each(
    ("members", "expected"),
    [
        (
            [("ada", ("cy",), 7, 1), ("bob", ("cy",), 7, 1), ("cy", (), 7, 0)],
            ["ada and bob wait for cy in step 7 of fluid; cy computes."],
        ),
        (
            [("ada", ("bob",), 7, 1), ("bob", ("cy",), 6, 1)],
            ["bob waits for cy in step 6 of fluid."],
        ),
        (
            [("ada", ("bob",), 6, 1), ("bob", ("cy",), 6, 1)],
            [
                "ada and bob wait for bob in step 6 of fluid; bob waits for cy in step 6.",
                "ada and bob wait for cy in step 6 of fluid.",
            ],
        ),
        (
            [("ada", ("bob",), 7, 1), ("bob", (), 8, 1)],
            [
                (
                    "ada waits for bob in step 7 of fluid; bob is in step 8, and its contribution "
                    "is on the way."
                )
            ],
        ),
        ([("ada", (), 7, 0), ("bob", (), 7, 0)], []),
    ],
)
def test_a_step_that_stands_still_names_those_it_lacks(
    members: list[tuple[str, tuple[str, ...], int, int]], expected: list[str]
) -> None:
    seen = [
        group(name, *missing, steps_total=step, exchanging=waits)
        for name, missing, step, waits in members
    ]
    assert texts(find_causes([standing(*map(list, seen))])) == expected


def test_steps_that_go_on_name_the_one_that_is_last_most_of_the_time() -> None:
    before = [
        list(group("ada", steps_total=7, waits={"cy": 1.0})),
        list(group("bob", steps_total=7, waits={"ada": 0.0, "cy": 1.0})),
    ]
    after = [
        list(group("ada", "cy", steps_total=90, exchanging=1, waits={"cy": 2.4})),
        list(group("bob", "cy", steps_total=90, waits={"ada": 0.1, "cy": 1.6})),
    ]
    one = observed(state(*after, at=2.0), state(*before, at=0.0))
    assert texts(find_causes([one])) == [
        "fluid waits 50 % of the time for cy, the last of most steps."
    ]
    alike = [
        list(group("ada", steps_total=90, waits={"bob": 0.8})),
        list(group("bob", steps_total=90, waits={"ada": 0.7, "cy": 1.7})),
    ]
    assert find_causes([observed(state(*alike, at=2.0), state(*before, at=0.0))]) == []
    # One member alone waits for somebody all the time, and cannot tell who is slow.
    for waited, found in ((1.6, 0), (2.3, 1)):
        alone = list(group("ada", steps_total=90, waits={"cy": waited}))
        seen = observed(state(alone, at=2.0), state(before[0], at=0.0))
        assert len(find_causes([seen])) == found
    # Of a page that was seen once, nothing is known of the time.
    assert find_causes([observed(state(*after))]) == []


def test_what_stands_still_comes_before_what_is_slow() -> None:
    slow = {**CHANNEL, "channel": "0x2"}
    seen = observed(
        state(
            channel(slow, messages_waiting=1, by_window=1),
            channel(messages_waiting=1, by_credit=1),
        )
    )
    assert ["credit" in text for text in texts(find_causes([seen]))] == [True, False]
