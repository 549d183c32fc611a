"""Messages between members: there and back, cut off anywhere, and with anything in any field."""

import pytest

from sphtp.core.group import messages as m
from sphtp.core.group.seats import Seat
from sphtp.core.packing import pack
from sphtp.errors import RemoteError
from tests.cases import each

KEY = (7, 1 << 60)
SEAT = Seat(7, 1 << 60, "ada", 3, (3, 7), has_state=True)

MESSAGES = [
    m.GroupHello(1, "fluid", KEY, "ada", "raise", 4, True, None),
    m.GroupHello(1, "fluid", KEY, "", "wait", 1, False, KEY),
    m.JoinRequest((KEY, (9, 1)), ()),
    m.FlushRequest(2, (KEY,)),
    m.FlushState(2, 3, -1, (SEAT, SEAT._replace(end=5, has_left=True)), ((KEY, -1),), None),
    m.Install(2, 3, KEY, (SEAT,)),
    m.Abandon(1),
    m.Admitted(4),
    m.Complaint((KEY,)),
    m.Exclusion("why"),
    m.Leaving(5),
    m.LeaveReleased(5),
    m.StateSnapshot(5, b"state"),
    m.StepReached(6),
    m.Dying("an error"),
    m.HeldContribution(KEY, m.contribution_head(4) + pack("x")),
]


@each("message", MESSAGES)
def test_a_message_comes_back_and_no_part_of_it_is_one(message: m.GroupMessage) -> None:
    data = m.encode_group_message(message)
    assert m.decode_group_message_untrusted(data) == message
    for broken in (*(data[:end] for end in range(len(data))), data + b"\x00"):
        with pytest.raises(RemoteError):
            m.decode_group_message_untrusted(broken)


@each("message", MESSAGES)
def test_a_field_of_another_kind_is_refused(message: m.GroupMessage) -> None:
    kind = m.encode_group_message(message)[2]
    for place in range(len(message)):
        wrongs: list[object] = [{}, 1.5, [[1, 2, 3]], -7]
        for wrong in wrongs:
            fields = [*message]
            fields[place] = wrong
            with pytest.raises(RemoteError):
                m.decode_group_message_untrusted(b"\x01" + pack([kind, *fields]))


@each("data", [b"", b"\x02", b"\x01\xc0", b"\x01\x90", b"\x01\x91\x63"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        m.decode_group_message_untrusted(data)


def test_a_contribution_has_a_step_and_a_value() -> None:
    data = m.contribution_head(12) + pack(1)
    assert m.step_of_untrusted(data) == 12
    assert m.step_of_untrusted(b"\x01") is None
    for broken in (data[:9], m.contribution_head((1 << 64) - 1) + b"\x01"):
        with pytest.raises(RemoteError):
            m.step_of_untrusted(broken)
