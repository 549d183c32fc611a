"""Requests between nodes over real sockets, and between clients of a real cluster."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import trio
import trio.testing

from sphtp import Config, Node, RefusedError, Request, RequestError, UnreachableError
from sphtp.core.requests.table import MOST_REQUESTS
from sphtp.core.requests.wire import SERVICE_LINE
from sphtp.core.schema import Schema
from sphtp.errors import (
    HandlerCrashedError,
    MessageTooLargeError,
    SettingsError,
    StateError,
)
from sphtp.messages import MessageFactory
from sphtp.shell.encoding import RAW
from sphtp.shell.lifetime import running
from sphtp.shell.registration import Registration
from sphtp.shell.requests import Requests
from sphtp.shell.services import Service
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_elsewhere, open_node
from tests.shell.test_client import client, cluster
from tests.soaked import soaked

pytestmark = within_20_seconds

LEFT, RIGHT = 1, 3


class NotFoundError(RequestError):
    """An error of a program, with a constructor of its own."""

    def __init__(self, step: int) -> None:
        super().__init__(f"there is no step {step}", data={"step": step})


@dataclass
class Party:
    """The requests of one node."""

    node: Node
    requests: Requests
    others: dict[int, Node]

    @property
    def id(self) -> int:
        return self.node.peer_id

    async def ask(self, peer: int, name: str, value: Any = None, errors: Any = ()) -> Any:
        return await self.requests.request(peer, name, value, errors)

    def serving(self, name: str, handler: Any, limit: int = 4096) -> Any:
        """Serve a name for the length of the block."""
        return served(self.requests, name, handler, limit)


@asynccontextmanager
async def served(requests: Requests, name: str, handler: Any, limit: int) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, requests, name, handler, limit))
        yield
        nursery.cancel_scope.cancel()


async def serve(
    requests: Requests, name: str, handler: Any, limit: int, *, task_status: trio.TaskStatus[None]
) -> None:
    await requests.serve(name, handler, limit, task_status)


def party(node: Node, others: dict[int, Node]) -> Party:
    async def locate(peer_id: int) -> Sequence[tuple[str, int]]:
        await trio.lowlevel.checkpoint()
        if peer_id not in others:
            raise UnreachableError(f"nobody has the id {peer_id}")
        return [others[peer_id].address]

    names = {LEFT: "left", RIGHT: "right"}.get
    requests = Requests(node.services, lambda: node.peer_id, locate, lambda it: str(names(it)))
    return Party(node, requests, others)


@asynccontextmanager
async def parties(**options: Any) -> AsyncIterator[tuple[Party, Party]]:
    """Two nodes that know each other, for the length of the block."""
    async with (
        open_node(peer_id=LEFT, **options) as left,
        open_node(peer_id=RIGHT, **options) as right,
    ):
        nodes = {LEFT: left, RIGHT: right}
        one, other = party(left, nodes), party(right, nodes)
        async with running(one.requests.run), running(other.requests.run):
            yield one, other


async def load(request: Request) -> Any:
    await trio.lowlevel.checkpoint()
    if request.value == "missing":
        raise NotFoundError(7)
    if request.value == "crash":
        raise ValueError("the secret of this side")
    return {"for": request.peer_id, "value": request.value}


async def test_a_request_returns_what_the_handler_of_the_peer_returns() -> None:
    async with parties() as (left, right), right.serving("load", load):
        for value in (1, "x", [1, 2], None, bytes(300_000)):
            assert await left.ask(RIGHT, "load", value) == {"for": LEFT, "value": value}
        assert (left.requests.channels, right.requests.channels) == (1, 1)
        assert left.requests.open_requests == right.requests.open_requests == 0


async def test_an_error_of_the_program_arrives_as_its_class_with_text_and_data() -> None:
    async with parties() as (left, right), right.serving("load", load):
        with pytest.raises(NotFoundError, match="there is no step 7") as caught:
            await left.ask(RIGHT, "load", "missing", [NotFoundError])
        assert caught.value.data == {"step": 7}
        with pytest.raises(RequestError, match="there is no step 7") as unknown:
            await left.ask(RIGHT, "load", "missing")
        assert type(unknown.value) is RequestError
        assert unknown.value.kind == "NotFoundError"


async def test_an_error_from_the_nursery_of_a_handler_arrives_as_itself() -> None:
    async def grouped(request: Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await load(request)

    async with parties() as (left, right), right.serving("load", grouped):
        with pytest.raises(NotFoundError):
            await left.ask(RIGHT, "load", "missing", [NotFoundError])


async def test_a_handler_that_crashes_says_nothing_of_why_and_the_next_request_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with parties() as (left, right), right.serving("load", load):
        with pytest.raises(HandlerCrashedError) as caught:
            await left.ask(RIGHT, "load", "crash")
        assert "secret" not in str(caught.value)
        assert await left.ask(RIGHT, "load", 1) == {"for": LEFT, "value": 1}
        assert right.requests.statistics().crashed == 1
    assert "ValueError: the secret of this side" in caplog.text


async def test_what_no_message_can_carry_is_an_error_where_it_was_made() -> None:
    async def strange(_: Request) -> object:
        await trio.lowlevel.checkpoint()
        return object()

    async with parties() as (left, right), right.serving("strange", strange):
        with pytest.raises(TypeError):
            await left.ask(RIGHT, "strange", object())
        with pytest.raises(MessageTooLargeError):
            await left.ask(RIGHT, "strange", bytes(17 * 1024 * 1024))
        with pytest.raises(HandlerCrashedError):
            await left.ask(RIGHT, "strange")
        assert left.requests.open_requests == 0


async def test_an_error_with_data_that_no_message_can_carry_ends_only_its_request() -> None:
    async def strange(_: Request) -> None:
        await trio.lowlevel.checkpoint()
        raise RequestError("a text with a surrogate", data="\ud800")

    async with parties() as (left, right), right.serving("strange", strange):
        for _ in range(2):
            with pytest.raises(HandlerCrashedError):
                await left.ask(RIGHT, "strange")


async def test_a_name_that_nobody_serves_is_refused() -> None:
    async with parties() as (left, right):
        with pytest.raises(RefusedError, match=r"of peer right: .*serves no such name") as caught:
            await left.ask(RIGHT, "load")
        assert caught.value.reason == "unknown"
        async with right.serving("load", load):
            await left.ask(RIGHT, "load")
            with pytest.raises(StateError, match="served already"):
                await right.requests.serve("load", load, 1, trio.TASK_STATUS_IGNORED)
        with pytest.raises(RefusedError):
            await left.ask(RIGHT, "load")


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
async def test_a_name_that_is_none_is_an_error_here(name: str) -> None:
    async with parties() as (left, _):
        with pytest.raises(SettingsError, match="name is"):
            await left.ask(RIGHT, name)
        with pytest.raises(SettingsError, match="name is"):
            await left.requests.serve(name, load, 1, trio.TASK_STATUS_IGNORED)


async def test_more_than_the_limit_is_refused_as_busy() -> None:
    going_on = trio.Event()

    async def wait(_: Request) -> None:
        await going_on.wait()

    async with (
        parties() as (left, right),
        right.serving("wait", wait, 2),
        trio.open_nursery() as nursery,
    ):
        for _ in range(2):
            nursery.start_soon(left.ask, RIGHT, "wait")
        await until(lambda: right.requests.statistics().received == 2)
        with pytest.raises(RefusedError) as caught:
            await left.ask(RIGHT, "wait")
        assert caught.value.reason == "busy"
        going_on.set()


async def test_the_deadline_of_the_caller_is_that_of_the_handler() -> None:
    seen, ended = list[float](), trio.Event()

    async def wait(request: Request) -> None:
        seen.append(request.deadline - trio.current_time())
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with parties() as (left, right), right.serving("wait", wait):
        with trio.move_on_after(0.2) as scope:
            await left.ask(RIGHT, "wait")
        assert scope.cancelled_caught
        await ended.wait()
        await until(lambda: left.requests.open_requests == 0)
        assert 0 < seen[0] <= 0.21
    assert left.requests.statistics().late == 1


async def test_a_cancelled_call_cancels_its_handler_and_no_other() -> None:
    ended, going_on = list[Any](), trio.Event()

    async def wait(request: Request) -> Any:
        try:
            await going_on.wait()
        except trio.Cancelled:
            ended.append(request.value)
            raise
        return request.value

    async with parties() as (left, right), right.serving("wait", wait):
        async with trio.open_nursery() as others:
            for value in range(3):
                others.start_soon(left.ask, RIGHT, "wait", value)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(left.ask, RIGHT, "wait", "cancelled")
                await until(lambda: right.requests.statistics().received == 4)
                nursery.cancel_scope.cancel()
            await until(lambda: ended == ["cancelled"])
            going_on.set()
        await until(lambda: left.requests.open_requests == 0)
        figures = left.requests.statistics()
        assert (figures.cancelled, figures.late, figures.replies) == (1, 1, 3)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
async def test_a_call_that_is_cancelled_at_any_moment_leaves_nothing(steps: int) -> None:
    async with parties() as (left, right), right.serving("load", load):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(left.ask, RIGHT, "load", bytes(20_000))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert await left.ask(RIGHT, "load", 1) == {"for": LEFT, "value": 1}
        await until(lambda: left.requests.open_requests + right.requests.open_requests == 0)


async def test_serving_that_is_cancelled_is_told_to_those_who_wait() -> None:
    async def wait(_: Request) -> None:
        await trio.sleep_forever()

    async with parties() as (left, right):
        async with trio.open_nursery() as nursery, right.serving("wait", wait):
            caught = list[RefusedError]()
            nursery.start_soon(failing, caught, left)
            await until(lambda: right.requests.statistics().received == 1)
        assert caught[0].reason == "ended"


async def failing(caught: list[RefusedError], left: Party) -> None:
    with pytest.raises(RefusedError) as error:
        await left.ask(RIGHT, "wait")
    caught.append(error.value)


async def test_answers_come_as_they_are_ready_and_a_large_one_holds_up_no_small_one() -> None:
    order = list[Any]()

    async def serve_sized(request: Request) -> bytes:
        await trio.lowlevel.checkpoint()
        return bytes(request.value)

    async def ask(left: Party, size: int) -> None:
        assert len(await left.ask(RIGHT, "sized", size)) == size
        order.append(size)

    async with parties() as (left, right), right.serving("sized", serve_sized):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, left, 16_000_000)
            await until(lambda: right.requests.statistics().received == 1)
            await ask(left, 1)
        assert order == [1, 16_000_000]


async def test_both_may_open_the_channel_at_once() -> None:
    answers = list[Any]()

    async def ask(here: Party, there: int) -> None:
        answers.append(await here.ask(there, "load"))

    async with (
        parties() as (left, right),
        left.serving("load", load),
        right.serving("load", load),
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, left, RIGHT)
                nursery.start_soon(ask, right, LEFT)
        assert len(answers) == 40
        # They agree on one of the two, and close the other one; another request opens none.
        await until(lambda: left.requests.channels == right.requests.channels == 1)
        await ask(left, RIGHT)
        await ask(right, LEFT)
        assert left.requests.channels == right.requests.channels == 1


async def test_one_channel_serves_both_directions() -> None:
    async def back(request: Request) -> Any:
        return await right_party[0].ask(request.peer_id, "load", "back")

    right_party = list[Party]()
    async with parties() as (left, right):
        right_party.append(right)
        async with left.serving("load", load), right.serving("back", back):
            assert await left.ask(RIGHT, "back") == {"for": RIGHT, "value": "back"}
            assert left.requests.channels == right.requests.channels == 1


KINDS = {
    "ok": 30,
    "large": 3,
    "fails": 15,
    "crashes": 2,
    "slow": 15,
    "cancelled": 15,
    "unknown": 20,
}


class Plan:
    """What becomes of many requests, by a seed, and what did."""

    def __init__(self, seed: int, many: int) -> None:
        self.random = random.Random(seed)
        self.kinds = self.random.choices(list(KINDS), weights=list(KINDS.values()), k=many)
        self.ended: dict[int, str] = {}
        self.are_here = trio.Event()

    async def handle(self, request: Request) -> Any:
        number, kind, _ = request.value
        await self.are_here.wait()
        await trio.sleep(self.random.random() / 50)
        match kind:
            case "fails":
                raise NotFoundError(number)
            case "crashes":
                raise ZeroDivisionError
            case "slow" | "cancelled":
                await trio.sleep_forever()
        return [number, bytes(100_000 if kind == "large" else 10)]

    async def ask(self, left: Party, number: int, kind: str) -> None:
        with trio.CancelScope() as scope:
            if kind == "slow":
                scope.deadline = trio.current_time() + 1
            async with trio.open_nursery() as nursery:
                if kind == "cancelled":
                    nursery.start_soon(self.cancel_later, scope)
                self.ended[number] = await self.outcome(left, number, kind)
        if scope.cancelled_caught:
            self.ended[number] = "slow" if scope.deadline < trio.current_time() else "cancelled"

    async def outcome(self, left: Party, number: int, kind: str) -> str:
        name = "other" if kind == "unknown" else "work"
        value = [number, kind, bytes(50_000 if kind == "large" else 5)]
        try:
            answer = await left.ask(RIGHT, name, value, [NotFoundError])
        except NotFoundError as error:
            return "fails" if error.data == {"step": number} else "of another"
        except HandlerCrashedError:
            return "crashes"
        except RefusedError as error:
            # The deadline travels with the request, and may end the handler first.
            return {"unknown": "unknown", "cancelled": "slow"}[error.reason]
        assert answer[0] == number
        return "large" if len(answer[1]) == 100_000 else "ok"

    async def cancel_later(self, scope: trio.CancelScope) -> None:
        await self.are_here.wait()
        await trio.sleep(self.random.random() / 50)
        scope.cancel()


@pytest.mark.parametrize("many", [250, *soaked([1000])])
async def test_many_at_once_end_each_as_it_should_and_nothing_is_left(many: int, seed: int) -> None:
    plan = Plan(seed, many)
    async with parties() as (left, right), right.serving("work", plan.handle):
        async with trio.open_nursery() as nursery:
            for number, kind in enumerate(plan.kinds):
                nursery.start_soon(plan.ask, left, number, kind)
            await until(lambda: right.requests.statistics().received >= 0.8 * many)
            assert left.requests.open_requests > many / 2
            plan.are_here.set()
        assert plan.ended == dict(enumerate(plan.kinds))
        await until(lambda: left.requests.open_requests + right.requests.open_requests == 0)
        here, there = left.requests.statistics(), right.requests.statistics()
        assert here.replies + here.errors + here.late == here.sent == there.received
        assert there.answered == there.received
        assert (here.lost, here.malformed, there.malformed) == (0, 0, 0)
    assert left.requests.channels == right.requests.channels == 0


async def test_more_than_the_bound_wait_for_their_turn() -> None:
    going_on = trio.Event()

    async def wait(_: Request) -> None:
        await going_on.wait()

    async with parties() as (left, right), right.serving("wait", wait):
        async with trio.open_nursery() as nursery:
            for _ in range(MOST_REQUESTS + 50):
                nursery.start_soon(left.ask, RIGHT, "wait")
            await until(lambda: right.requests.statistics().received == MOST_REQUESTS)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert right.requests.statistics().received == MOST_REQUESTS
            going_on.set()
        assert right.requests.statistics().received == MOST_REQUESTS + 50


async def test_a_peer_that_is_nowhere_is_unreachable() -> None:
    async with parties() as (left, _):
        for _ in range(2):
            with pytest.raises(UnreachableError, match="nobody has the id 99"):
                await left.ask(99, "load")
        assert left.requests.channels == 0


async def test_a_client_that_closes_during_the_search_for_the_peer_says_so() -> None:
    async def locate(_: int) -> Sequence[tuple[str, int]]:
        await trio.lowlevel.checkpoint()
        raise trio.ClosedResourceError("this client was closed")

    async with open_node(peer_id=LEFT) as node:
        requests = Requests(node.services, lambda: LEFT, locate, str)
        async with running(requests.run):
            with pytest.raises(trio.ClosedResourceError, match="this client was closed"):
                await requests.request(RIGHT, "load", None, ())


async def test_a_peer_whose_messages_have_other_types_refuses() -> None:
    async with (
        open_node(peer_id=LEFT, config=Config(messages=MessageFactory([Step]))) as left,
        open_node(peer_id=RIGHT) as right,
    ):
        nodes = {LEFT: left, RIGHT: right}
        one, other = party(left, nodes), party(right, nodes)
        async with running(one.requests.run), running(other.requests.run):
            with pytest.raises(RefusedError, match="message types differ"):
                await one.ask(RIGHT, "load", Step(1))


@dataclass
class Step:
    number: int


async def test_values_are_of_the_types_of_the_program() -> None:
    async def following(request: Request) -> Step:
        await trio.lowlevel.checkpoint()
        return Step(request.value.number + 1)

    types = MessageFactory([Step])
    async with (
        parties(config=Config(messages=types)) as (left, right),
        right.serving("step", following),
    ):
        assert await left.ask(RIGHT, "step", Step(1)) == Step(2)


async def test_a_peer_that_goes_in_the_middle_fails_what_waits_and_stops_what_runs() -> None:
    stopped = trio.Event()

    async def wait(_: Request) -> None:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()

    async with open_elsewhere(peer_id=LEFT) as elsewhere, open_node(peer_id=RIGHT) as right:
        nodes = {LEFT: elsewhere.node, RIGHT: right}
        one, other = party(elsewhere.node, nodes), party(right, nodes)
        async with (
            running(one.requests.run),
            running(other.requests.run),
            one.serving("wait", wait),
            other.serving("wait", wait),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broken, one, RIGHT)
                nursery.start_soon(broken, other, LEFT)
                await until(lambda: other.requests.open_requests == 2)
                await elsewhere.close()
            await stopped.wait()
            await until(lambda: other.requests.channels == one.requests.channels == 0)
            assert other.requests.statistics().lost == 1


async def broken(here: Party, peer: int) -> None:
    with pytest.raises(trio.BrokenResourceError, match="no answer to 'wait'"):
        await here.ask(peer, "wait")


async def test_a_channel_that_nobody_uses_is_closed_and_another_one_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sphtp.shell.requests.IDLE", 0.05)
    async with parties() as (left, right), right.serving("load", load):
        for _ in range(3):
            await left.ask(RIGHT, "load")
            assert left.requests.channels == 1
            await until(lambda: left.requests.channels == right.requests.channels == 0)


async def test_a_client_that_is_closed_says_so() -> None:
    async with parties() as (left, _):
        pass
    with pytest.raises(trio.ClosedResourceError):
        await left.ask(RIGHT, "load")
    with pytest.raises(trio.ClosedResourceError):
        await left.requests.serve("load", load, 1, trio.TASK_STATUS_IGNORED)


async def test_who_waits_for_a_channel_of_a_client_that_closes_is_told_so() -> None:
    async def never(_: int) -> Sequence[tuple[str, int]]:
        await trio.sleep_forever()
        return []

    async def ask(requests: Requests) -> None:
        with pytest.raises(trio.ClosedResourceError, match="this client is closed"):
            await requests.request(RIGHT, "load", None, ())

    # The order of the tasks that wake at the end is drawn anew each time.
    async with open_node(peer_id=LEFT) as node:
        for _ in range(20):
            requests = Requests(node.services, lambda: LEFT, never, str)
            async with trio.open_nursery() as nursery, running(requests.run):
                nursery.start_soon(ask, requests)
                await trio.testing.wait_all_tasks_blocked()


async def test_a_peer_keeps_two_channels_however_many_it_opens() -> None:
    async with parties() as (left, right), trio.open_nursery() as nursery:
        await right.requests.wait_started()
        schema = Schema([SERVICE_LINE, *left.node.services.schema.lines])
        service = Service(schema, lambda channel: channel.abort(), RAW)

        async def open_channel() -> None:
            with suppress(trio.BrokenResourceError):
                async with left.node.services.open(service, [right.node.address]) as channel:
                    await channel.receive()

        for _ in range(30):
            nursery.start_soon(open_channel)
        await until(lambda: right.requests.channels > 0)
        for _ in range(10):
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert right.requests.channels <= 2
        nursery.cancel_scope.cancel()


async def test_a_client_that_has_just_entered_refuses_no_channel_for_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(1) as (server,), client(server.address, name="Ann") as ann:
        wait_established, reasons = Registration.wait_established, list[str]()

        async def ask_first(registration: Registration, *args: Any) -> None:
            """Let Ann ask before the block of the client that enters begins."""
            await wait_established(registration, *args)
            with pytest.raises(RefusedError) as refused:
                await ann.request("Bob", "load")
            reasons.append(refused.value.reason)

        monkeypatch.setattr(Registration, "wait_established", ask_first)
        async with client(server.address, name="Bob"):
            assert reasons == ["unknown"]


async def test_clients_ask_each_other() -> None:
    async with (
        cluster(1) as (only,),
        client(only.address) as left,
        client(only.address, name="store") as right,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(right.serve, "load", load)
        peer = await left.wait_for_peer(right.id)
        assert await left.request(peer, "load", 1) == {"for": left.id, "value": 1}
        with pytest.raises(NotFoundError):
            await left.request(right.id, "load", "missing", errors=[NotFoundError])
        with pytest.raises(RefusedError, match=r"'save' of peer store \(0x"):
            await left.request("store", "save")
        with pytest.raises(TypeError, match="neither a peer nor its id"):
            await left.request(cast("Any", 2.5), "load")
        assert left.statistics().requests.sent == 3
        nursery.cancel_scope.cancel()
