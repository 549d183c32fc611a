"""Messages packed into bits."""

from typing import Self

from sphtp.core.messages.shapes import record_of
from sphtp.core.messages.streams import BitStream, MeasureStream, ReadStream, WriteStream, read_all
from sphtp.errors import WireError, untrusted


class BitMessage:
    """A small object that can serialize itself, after the ``Message`` of Fiedler's article.

    A subclass can be created without arguments. One method writes, reads and measures it:

        class Shot(BitMessage):
            def __init__(self, angle: float = 0.0, power: int = 0) -> None:
                self.angle, self.power = angle, power

            def serialize(self, stream: BitStream) -> None:
                self.angle = stream.compressed(self.angle, -180.0, 180.0, 0.01)
                self.power = stream.integer(self.power, 0, 100)

    A dataclass with bounds in its annotations needs no method:

        @dataclass
        class Shot(BitMessage):
            angle: Annotated[float, Compressed(-180.0, 180.0, 0.01)] = 0.0
            power: Annotated[int, Range(0, 100)] = 0
    """

    __slots__ = ()

    def serialize(self, stream: BitStream) -> None:
        """Pass every field through the stream, and store the result.

        This default follows the annotations of a dataclass.
        """
        for name, shape in record_of(type(self)).shapes.items():
            try:
                setattr(self, name, shape.serialize(stream, getattr(self, name)))
            except WireError as error:
                raise WireError(f"{name}: {error}") from error

    def write(self) -> bytes:
        """Return the message in bits, padded to a byte.

        Raises:
            WireError: a value does not fit its bounds.
        """
        stream = WriteStream()
        self.serialize(stream)
        return stream.finish()

    def measure(self) -> int:
        """Return the number of bits that the message takes.

        Raises:
            WireError: a value does not fit its bounds.
        """
        stream = MeasureStream()
        self.serialize(stream)
        return stream.position

    @classmethod
    @untrusted
    def read_untrusted(cls, data: bytes) -> Self:
        """Return the message from which ``write`` makes these bytes.

        Raises:
            RemoteError: no message of this class writes these bytes.
        """
        return read_all(cls, ReadStream(data))
