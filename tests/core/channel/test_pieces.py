"""What one frame carries, and its place in the lane."""

from sphtp.core.channel.frames import Fragment
from sphtp.core.channel.pieces import Piece


def test_pieces_sort_by_their_place() -> None:
    def piece(first_id: int, index: int) -> Piece:
        return Piece(Fragment(0, 0, 0, 1, b"x"), first_id, 1, 1, index)

    assert piece(1, 5) < piece(2, 0) < piece(2, 3)
