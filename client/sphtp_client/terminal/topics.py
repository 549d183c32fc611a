"""The verbs ``sphtp pub`` and ``sphtp sub``: publish and print messages of topics."""

from functools import partial
from typing import Any

import click
import trio

from sphtp import Source
from sphtp.core.printable import peer_label
from sphtp.errors import UnreachableError
from sphtp.shell.lifetime import running
from sphtp.streams import TopicLoss, TopicMessage, TopicSourceFailed, TopicSubscription
from sphtp_client.options import PUB_OPTIONS, SUB_OPTIONS, with_options
from sphtp_client.terminal.connection import Output, TerminalOptions, facts_of, run_verb, shown
from sphtp_client.terminal.values import parse_value, stdin_lines, to_json
from sphtp_server.client_config import CONTEXT


@click.command(short_help="Publish messages of a topic.", context_settings=CONTEXT)
@click.argument("topic")
@click.argument("value", required=False)
@with_options(PUB_OPTIONS)
def pub(topic: str, value: str | None, receivers: int, **values: Any) -> None:
    """Publish VALUE, or each line of standard input but blank ones, to the subscribers of TOPIC.

    A value is JSON: 3.5, '"a text"' or '{"x": [1, 2]}'. The command waits for --receivers
    subscriptions before the first message. It ends when the subscribers have all messages, 5 s
    after the last one at the latest. A subscriber that joins later gets the earlier messages only
    with sphtp sub --late-join.

    Exit codes: 0 all messages were sent, 2 wrong arguments, 3 no server was found, or too few
    subscribed in time, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions(**values)
    run_verb(partial(_pub, options, topic, value, receivers), as_json=options.json)


async def _pub(options: TerminalOptions, topic: str, value: str | None, receivers: int) -> None:
    output = Output(as_json=options.json)
    single = None if value is None else [parse_value(value, "VALUE")]
    async with options.open() as client, client.publish(topic) as source:
        await _wait_for_receivers(source, receivers, topic, options.timeout)
        if single is not None:
            await _send(source, single[0], output)
            return
        number = 0
        async for line in stdin_lines():
            number += 1
            await _send(source, parse_value(line, f"message {number} of standard input"), output)


async def _wait_for_receivers(source: Source, count: int, topic: str, patience: float) -> None:
    try:
        with trio.fail_after(patience):
            await source.wait_for_receivers(count)
    except trio.TooSlowError as error:
        there = len(source.receivers)
        wanted = f"{there} of {count} subscriptions to {topic!r}"
        raise UnreachableError(f"{wanted} came within {patience:g} s; nothing was sent") from error


async def _send(source: Source, value: Any, output: Output) -> None:
    number = await source.send(value)
    if output.as_json:
        output.event("sent", "", number=number)


@click.command(short_help="Print the messages of topics.", context_settings=CONTEXT)
@click.argument("pattern")
@with_options(SUB_OPTIONS)
def sub(pattern: str, count: int | None, latest: bool, late_join: bool, **values: Any) -> None:
    """Print the messages of all peers on the topics that PATTERN selects, a line each.

    PATTERN is a topic with wildcards, such as 'positions/*': * stands for one level, and ** for any
    number of levels. The command also prints a line for lost messages, except with --latest, and
    for sources that it cannot join.

    Exit codes: 0 --count messages arrived, or the output was closed, 2 wrong arguments, 3 no server
    was found, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions(**values)
    work = partial(_sub, options, pattern, count, latest=latest, late_join=late_join)
    run_verb(work, as_json=options.json)


async def _sub(
    options: TerminalOptions, pattern: str, count: int | None, *, latest: bool, late_join: bool
) -> None:
    output, seen = Output(as_json=options.json), 0
    async with (
        options.open() as client,
        client.subscribe(pattern, latest=latest, late_join=late_join) as subscription,
        running(partial(_print_failures, output, subscription)),
    ):
        async for item in subscription:
            _print_item(output, item)
            seen += isinstance(item, TopicMessage)
            if seen == count:
                return


async def _print_failures(output: Output, subscription: TopicSubscription[Any]) -> None:
    async for event in subscription.events():
        if isinstance(event, TopicSourceFailed):
            label = peer_label(event.peer.name, event.peer.id)
            text = f"{label} {event.topic} cannot be joined: {event.why}"
            facts = facts_of(event.peer)
            output.event("source_failed", text, **facts, topic=event.topic, why=event.why)


def _print_item(output: Output, item: TopicMessage[Any] | TopicLoss) -> None:
    peer, topic = item.peer, item.topic
    label = peer_label(peer.name, peer.id)
    facts = {**facts_of(peer), "topic": topic}
    if isinstance(item, TopicMessage):
        value = to_json(item.value)
        text = f"{label} {topic} {shown(item.value)}"
        output.event("message", text, **facts, number=item.number, value=value)
        return
    loss = item.loss
    text = f"{label} {topic} lost: messages {loss.first} to {loss.last}: {loss.reason}"
    output.event(
        "loss", text, **facts, first=loss.first, last=loss.last, reason=loss.reason.name.lower()
    )
