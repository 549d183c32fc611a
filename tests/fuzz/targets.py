"""All targets: plain functions that take bytes, and raise when something is wrong.

A decoder is fed the bytes as they are. For whatever lives longer they choose what happens to it,
one thing after the other.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio
from trio.testing import MockClock

from sphtp.errors import RemoteError
from tests.fuzz.airing import Airing
from tests.fuzz.callers import call
from tests.fuzz.census import census
from tests.fuzz.channels import (
    group_arrays,
    request_channel,
    shared_channel,
    shared_entries,
    watched_member,
)
from tests.fuzz.choices import Script
from tests.fuzz.control import Lodge, Machine, make_client, make_joining_server, make_server
from tests.fuzz.crossing import Crossing
from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.nodes import SUBJECTS, Subject
from tests.fuzz.reading import Reading
from tests.fuzz.registry import registry
from tests.fuzz.sealed import SEALED
from tests.fuzz.services import member, requests
from tests.fuzz.siege import Siege
from tests.fuzz.speaker import Speaker
from tests.fuzz.stands import Stand

Target = Callable[[bytes], None]

CORPUS: Final = Path(__file__).parent / "corpus"

MOST_ENTRIES: Final = 50_000
MOST_BYTES: Final = 5_000_000
"""What nothing holds that has limits as small as those here."""


def feed(decoder: Decoder, data: bytes) -> None:
    try:
        decoder(data)
    except RemoteError:
        return


def _besiege(subject: Subject, data: bytes) -> None:
    script = Script(data)
    siege = Siege(script, subject)
    while script:
        siege.step()
    check_size(siege.node)


def _cross(subject: Subject, data: bytes) -> None:
    script = Script(data)
    crossing = Crossing(script, subject)
    while script:
        crossing.step()
    crossing.finish()


def _tell(make: Callable[[], Machine], data: bytes) -> None:
    script = Script(data)
    lodge = Lodge(script, make())
    while script:
        lodge.step()
    check_size(lodge.machine)


def _speak(data: bytes) -> None:
    script = Script(data)
    speaker = Speaker(script)
    while script:
        speaker.step()
    check_size(speaker.source)


def _read(data: bytes) -> None:
    script = Script(data)
    reading = Reading(script)
    while script:
        reading.step()
    check_size(reading.subscription)


def _air(data: bytes) -> None:
    script = Script(data)
    airing = Airing(script)
    while script:
        airing.step()
    airing.finish()


def _attend(data: bytes) -> None:
    async def attend() -> None:
        script = Script(data)
        stand = Stand(script)
        while script:
            stand.step()
        check_size(stand)

    trio.run(attend, clock=MockClock())


def check_size(holder: object) -> None:
    """Raise ``AssertionError`` if something holds more than it should."""
    held = census(holder)
    assert held.entries <= MOST_ENTRIES, f"{held.entries} entries in tables and queues"
    assert held.size <= MOST_BYTES, f"{held.size} bytes in buffers"


def _all() -> Iterator[tuple[str, Target]]:
    for name, decoder in {**DECODERS, **SEALED}.items():
        yield name, partial(feed, decoder)
    for name, subject in SUBJECTS.items():
        yield f"siege-{name}", partial(_besiege, subject)
        yield f"crossing-{name}", partial(_cross, subject)
    yield "control-server", partial(_tell, make_server)
    yield "control-server-joining", partial(_tell, make_joining_server)
    yield "control-client", partial(_tell, make_client)
    yield "stream-source", _speak
    yield "stream-subscription", _read
    yield "stream-airing", _air
    yield "stream-desk", _attend
    yield "stream-callers", call
    yield "group-member", lambda data: check_size(member(data))
    yield "requests-channel", request_channel
    yield "shared-channel", shared_channel
    yield "shared-entries", shared_entries
    yield "group-watched", watched_member
    yield "group-arrays", group_arrays
    yield "registry-answers", lambda data: check_size(registry(data))
    yield "requests-table", lambda data: check_size(requests(data))


TARGETS: Final[Mapping[str, Target]] = dict(_all())


def kept(name: str) -> list[Path]:
    """The inputs that are kept for a target."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
