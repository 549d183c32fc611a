"""One simulation client, from its registration to the end of its slab's work.

The client waits for the peers of the other slabs, opens a link to the neighbour with the higher
number, accepts one from the other neighbour, and runs its steps. At the end, every other slab sends
its spheres to slab 0, which confirms when it has all of them. Slab 1 uses its link to slab 0; the
other slabs open a link for this. After the confirmation a client may leave, because no peer needs
data from another. The side that opened a channel closes it first, and the other side waits for
that.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from sphtp import Client
from sphtp import events as library
from sphtp.core.group.steps import StepStatistics
from sphtp.errors import LocalError
from sphtp.observe import Instrument, serve_status
from sphtp.shell.lifetime import running
from sphtp_client.connection import ConnectionSettings, channel_log
from sphtp_client.simulation.frames import FRAMES, FramePublisher, topic_of
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.peer_links import (
    PeerGoneError,
    PeerLink,
    PeerLinks,
    SlabJob,
    find_peers,
    notify_all,
    open_peer_links,
)
from sphtp_client.simulation.reports import (
    Connected,
    Finished,
    LinkReport,
    PageLimited,
    PeerGone,
    Reporter,
    Result,
    ServerCame,
    ServerLost,
    StepProgress,
    Totals,
)
from sphtp_client.simulation.run import run_slab, slab_name
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import Spheres, concat, pack, state_sha256, unpack_untrusted
from sphtp_server.page import look_on

CONFIRMATION: Final = b"thanks"

SIMULATION: Final = "simulation"
"""The name of the steps in the status of the client."""


async def collect(slab: Slab, sources: Mapping[int, PeerLink], table: Spheres) -> Spheres:
    """Receive the spheres of all other slabs, confirm that, and return all, in order of ids.

    Raises ``PeerGoneError`` if a peer leaves, ``RemoteError`` for a malformed message, and
    ``LocalError`` if spheres are missing or duplicated, or a slab ended at another step.
    """
    parts = [slab.spheres]
    for link in sources.values():
        step, spheres = unpack_untrusted(await link.receive(), table)
        if step != slab.step:
            raise LocalError(f"slab {link.slab} ended at step {step}, slab 0 at step {slab.step}")
        parts.append(spheres)
    whole = concat(parts)
    if len(whole) != len(table):
        raise LocalError(f"{len(whole)} of {len(table)} spheres are left")
    for link in sources.values():
        await link.send(CONFIRMATION)
    return whole


async def deliver(slab: Slab, target: PeerLink) -> None:
    """Send this slab's spheres to slab 0, and wait for its confirmation.

    Raises ``PeerGoneError`` if the peer leaves, and ``LocalError`` for another reply.
    """
    await target.send(pack(slab.spheres, slab.step))
    answer = await target.receive()
    if answer != CONFIRMATION:
        raise LocalError(f"slab {target.slab} answered {answer[:20]!r} to the final state")


class ProgressMeter:
    """The reports of a slab's progress; ``on_step`` is an argument for ``run_slab``.

    It reports the first step, and then a step every ``progress_every`` seconds of the reporter.
    """

    def __init__(
        self,
        steps: int,
        reporter: Reporter,
        links: Callable[[], tuple[LinkReport, ...]] = tuple,
        servers: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._steps = steps
        self._reporter = reporter
        self._links = links
        self._servers = servers
        self._began = trio.current_time()
        self._reported: tuple[float, int] | None = None  # when, and which step

    @property
    def seconds(self) -> float:
        """The time since this meter was made, in seconds."""
        return trio.current_time() - self._began

    async def on_step(self, slab: Slab) -> None:
        """Report the progress, unless the last report is too recent."""
        # A checkpoint in every call, also in those without a report.
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if self._reported is not None and now - self._reported[0] < self._reporter.progress_every:
            return
        speed = (
            None if self._reported is None else self._speed_since(*self._reported, now, slab.step)
        )
        self._reported = now, slab.step
        self._reporter.report(
            StepProgress(
                step=slab.step,
                steps=self._steps,
                steps_per_s=speed,
                servers=self._servers(),
                links=self._links(),
            )
        )

    @staticmethod
    def _speed_since(then: float, before: int, now: float, step: int) -> float:
        return round((step - before) / max(now - then, 1e-9), 1)


async def run_peer(job: SlabJob, connection: ConnectionSettings, reporter: Reporter) -> None:
    """Simulate the slab of a job, and report its events.

    Raises ``PeerGoneError`` if another peer leaves before the end, ``UnreachableError`` and
    ``RefusedError`` if the client cannot register or a peer does not appear, ``SettingsError`` if a
    log cannot be opened or a peer simulates something else, and as ``run_slab``.
    """
    with channel_log(connection.qlog, f"slab {job.slab} of {job.slabs}") as instruments:
        await _take_part(job, connection, reporter, instruments)


async def run_alone(scenario: Scenario, steps: int, reporter: Reporter) -> None:
    """Simulate the whole box in this process, without servers and peers. Raises as ``run_slab``."""
    table = initial_spheres(scenario)
    slab = Slab(scenario, initial=table)
    pace = ProgressMeter(steps, reporter)
    await run_slab(slab, None, None, steps, pace.on_step)
    seconds = pace.seconds
    reporter.report(_result(scenario, steps, seconds, table, slab.spheres))
    reporter.report(Finished(steps=steps, seconds=round(seconds, 3)))


async def _take_part(
    job: SlabJob,
    connection: ConnectionSettings,
    reporter: Reporter,
    instruments: Sequence[Instrument],
) -> None:
    # Placed before the registration, because it can take longer than an expiry.
    table = initial_spheres(job.scenario)
    slab = Slab(job.scenario, job.slab, job.slabs, initial=table)
    statistics = StepStatistics[str]()
    async with (
        connection.open(job.data, instruments, name=slab_name(job.slab)) as client,
        running(partial(serve_status, client, steps={SIMULATION: statistics})),
        _open_web(connection, client, statistics) as metrics,
        _open_page(connection, client, statistics, reporter) as page,
    ):
        servers = tuple(sorted(client.servers))
        reporter.report(
            Connected(
                id=client.id,
                slab=job.slab,
                slabs=job.slabs,
                servers=servers,
                metrics=metrics,
                page=page,
            )
        )
        async with (
            running(partial(_report_servers, client, client.events(), reporter)),
            client.publish(topic_of(job.slab), settings=FRAMES) as source,
        ):
            publisher = FramePublisher(source, job.steps)
            publisher.publish(slab)
            roster = await find_peers(client, job, connection.wait)
            async with open_peer_links(client, roster, connection.wait) as peer_links:
                work = _Work(job, reporter, client, peer_links, slab, table, publisher, statistics)
                await work.perform()
        reporter.report(work.finished())


@asynccontextmanager
async def _open_web(
    connection: ConnectionSettings, client: Client, statistics: StepStatistics[str]
) -> AsyncIterator[str | None]:
    """Serve metrics for the length of the block, and yield their URL; None without ``metrics``."""
    if connection.metrics is None:
        yield None
        return
    # Imported here, because it needs an extra, and takes a third of a second to load.
    from sphtp.web import open_web

    host, port = connection.metrics
    steps = {SIMULATION: statistics}
    async with open_web(client, host=host, port=port, token=connection.token, steps=steps) as web:
        yield web.url


@asynccontextmanager
async def _open_page(
    connection: ConnectionSettings,
    client: Client,
    statistics: StepStatistics[str],
    reporter: Reporter,
) -> AsyncIterator[str | None]:
    """Serve the page for the length of the block, and yield its URL; None without ``web``."""
    if connection.web is None:
        yield None
        return
    from sphtp.web import open_web

    host, port = connection.web
    # The page has a client of its own, with random ids and without simulated faults.
    config = replace(connection.config(), seed=None, impairment=None)
    steps = {SIMULATION: statistics}
    async with open_web(
        client, host=host, port=port, token=connection.web_token, page=True, steps=steps,
        config=config,
    ) as web:  # fmt: skip

        def complain(reason: str) -> None:
            reporter.report(PageLimited(reason=reason))

        # If this client fails, the page still works, with the data of this process only.
        async with running(partial(look_on, web, connection.servers, config, complain)):
            yield web.url


async def _report_servers(
    client: Client, events: AsyncIterator[library.ClientEvent], reporter: Reporter
) -> None:
    async for event in events:
        servers = tuple(sorted(client.servers))
        match event:
            case library.ServerEntered(member):
                reporter.report(ServerCame(id=member.id, servers=servers))
            case library.ServerLeft(member, reason):
                why = reason.name.lower()
                reporter.report(ServerLost(id=member.id, reason=why, servers=servers))
            case _:
                pass


@dataclass(eq=False)
class _Work:
    """The work of a client after it has found the peers of its run."""

    job: SlabJob
    reporter: Reporter
    client: Client
    peer_links: PeerLinks
    slab: Slab
    table: Spheres
    publisher: FramePublisher
    statistics: StepStatistics[str]
    seconds: float = 0.0

    async def perform(self) -> None:
        """Run the steps and gather the result; report a failure to the neighbours."""
        try:
            await self._run_and_gather()
        except PeerGoneError as error:
            await notify_all(self.peer_links.links.values(), error.event)
            raise
        except Exception as error:
            own = PeerGone(slab=self.job.slab, id=self.client.id, reason=str(error))
            await notify_all(self.peer_links.links.values(), own)
            raise

    def finished(self) -> Finished:
        """Return the final report, with the figures of all links."""
        reports = self.peer_links.reports()
        return Finished(steps=self.job.steps, seconds=round(self.seconds, 3), links=reports)

    async def _run_and_gather(self) -> None:
        await self._link_up()
        links = self.peer_links.links
        left, right = links.get(self.job.slab - 1), links.get(self.job.slab + 1)
        pace = ProgressMeter(self.job.steps, self.reporter, self.peer_links.reports, self._servers)

        async def on_step(slab: Slab) -> None:
            self.publisher.on_step(slab)
            await pace.on_step(slab)

        await run_slab(self.slab, left, right, self.job.steps, on_step, self.statistics)
        self.seconds = pace.seconds
        if self.job.slab:
            await deliver(self.slab, links.get(0) or await self.peer_links.open(0))
        else:
            await self._collect()

    async def _link_up(self) -> None:
        """Open a link to the neighbour with the higher number, accept one from the lower."""
        neighbours = {self.job.slab - 1, self.job.slab + 1} & set(self.job.others)
        for slab in sorted(neighbours, reverse=True):
            if slab > self.job.slab:
                await self.peer_links.open(slab)
            else:
                await self.peer_links.accept({slab})

    async def _collect(self) -> None:
        async with running(self._watch_departures):
            await self.peer_links.accept(set(self.job.others) - set(self.peer_links.links))
        whole = await collect(self.slab, self.peer_links.links, self.table)
        job = self.job
        self.reporter.report(_result(job.scenario, job.steps, self.seconds, self.table, whole))

    async def _watch_departures(self) -> None:
        """Raise ``PeerGoneError`` when a peer leaves to which there is no link yet."""
        events = self.client.events()
        for slab, peer_id in self.peer_links.roster.items():
            if peer_id not in self.client.peers:
                self._miss(slab, peer_id, "it is not among the peers any more")
        slabs = {peer_id: slab for slab, peer_id in self.peer_links.roster.items()}
        async for event in events:
            if isinstance(event, library.PeerLeft) and event.peer.id in slabs:
                self._miss(slabs[event.peer.id], event.peer.id, event.reason.name.lower())

    def _miss(self, slab: int, peer_id: int, reason: str) -> None:
        if slab not in self.peer_links.links:
            raise PeerGoneError(PeerGone(slab=slab, id=peer_id, reason=reason))

    def _servers(self) -> tuple[int, ...]:
        return tuple(sorted(self.client.servers))


def _result(scenario: Scenario, steps: int, seconds: float, start: Spheres, end: Spheres) -> Result:
    return Result(
        steps=steps,
        seconds=round(seconds, 3),
        state_sha256=state_sha256(end),
        start=_totals(start, scenario),
        end=_totals(end, scenario),
    )


def _totals(spheres: Spheres, scenario: Scenario) -> Totals:
    seen = observe(spheres, scenario)
    return Totals(count=seen.count, energy=seen.energy, momentum=seen.momentum)
