"""The I/O of the registry on etcd: it sends the registry's requests, and passes on the replies."""

import time
from collections.abc import Callable

import trio

from sphtp_server.registry.etcd import EtcdRegistry, StoreRequest, StoreTask
from sphtp_server.registry.gateway import Gateway, GatewayError


def suspended() -> float:
    """Return the seconds for which this machine has been suspended since its start.

    ``CLOCK_MONOTONIC``, the clock of all timers here, does not count them. On systems without
    ``CLOCK_BOOTTIME``, which only Linux has, the result is 0.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class EtcdStore:
    """A ``SharedStore`` on etcd."""

    def __init__(self, registry: EtcdRegistry, gateway: Gateway) -> None:
        self.registry = registry
        self._gateway = gateway
        self._nursery: trio.Nursery | None = None
        self._changed: Callable[[], None] = lambda: None
        self._watch = trio.CancelScope()

    def perform(self) -> None:
        """Start the requests that the registry has queued; before ``run``, they wait for it."""
        if self._nursery is None:
            return
        while (request := self.registry.poll_request(trio.current_time())) is not None:
            if request.task is StoreTask.WATCH:
                self._watch.cancel()
                self._watch = trio.CancelScope()
                self._nursery.start_soon(self._follow, request, self._watch)
            else:
                self._nursery.start_soon(self._ask, request)

    async def run(self, changed: Callable[[], None]) -> None:
        """Perform requests until cancelled. ``changed`` is called after each reply or failure."""
        self._changed = changed
        try:
            async with trio.open_nursery() as self._nursery:
                self.perform()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._gateway.close()

    async def leave(self) -> None:
        """Send the last requests of a registry that has stopped, and close the connections."""
        while (request := self.registry.poll_request(trio.current_time())) is not None:
            try:
                await self._gateway.request(request.path, request.body)
            except GatewayError:
                break  # The lease ends by itself.
        self._gateway.close()

    async def _ask(self, request: StoreRequest) -> None:
        assert request.timeout is not None
        why = f"{self._gateway.endpoint}: no answer within {request.timeout:.3g} s"
        with trio.move_on_after(request.timeout):
            try:
                document = await self._gateway.request(request.path, request.body)
            except GatewayError as error:
                why = str(error)
            else:
                self.registry.handle_answer(trio.current_time(), request, document)
                self._changed()
                return
        self.registry.handle_failure(trio.current_time(), request, why)
        self._changed()

    async def _follow(self, request: StoreRequest, scope: trio.CancelScope) -> None:
        why = "the watch ended"
        with scope:
            try:
                async with self._gateway.stream(request.path, request.body) as documents:
                    async for document in documents:
                        now = trio.current_time()
                        is_wanted = self.registry.handle_answer(now, request, document)
                        self._changed()
                        if not is_wanted:
                            break
            except GatewayError as error:
                why = str(error)
        self.registry.handle_failure(trio.current_time(), request, why)
        self._changed()
