"""Types of messages: the codecs for ``Config(messages=...)``, and their parts.

``import sphtp`` does not load this module, because programs without types do not need it.
"""

from sphtp.core.messages import BitMessage as BitMessage
from sphtp.core.messages import Bits as Bits
from sphtp.core.messages import BitStream as BitStream
from sphtp.core.messages import Compressed as Compressed
from sphtp.core.messages import Compression as Compression
from sphtp.core.messages import Float32 as Float32
from sphtp.core.messages import Limit as Limit
from sphtp.core.messages import MessageCodec as MessageCodec
from sphtp.core.messages import MessageFactory as MessageFactory
from sphtp.core.messages import PlainMessages as PlainMessages
from sphtp.core.messages import Range as Range
from sphtp.core.messages import difference as difference
