"""Message types, and the encoding of their messages as bytes.

A ``MessageFactory`` has the message types of a program: dataclasses, encoded by msgpack, and
subclasses of ``BitMessage``, whose one method ``serialize`` writes, reads and measures a message.
``PlainMessages`` is the codec without types, for any value that msgpack can encode.
"""

from sphtp.core.messages.bounds import Bits, Compressed, Float32, Limit, Range
from sphtp.core.messages.codec import Compression, MessageCodec, PlainMessages
from sphtp.core.messages.factory import BitMessage, MessageFactory
from sphtp.core.messages.streams import BitStream, MeasureStream, ReadStream, WriteStream
from sphtp.core.schema import difference, fingerprint

__all__ = [
    "BitMessage",
    "BitStream",
    "Bits",
    "Compressed",
    "Compression",
    "Float32",
    "Limit",
    "MeasureStream",
    "MessageCodec",
    "MessageFactory",
    "PlainMessages",
    "Range",
    "ReadStream",
    "WriteStream",
    "difference",
    "fingerprint",
]
