"""`Current`: the application of a collection as it is now, which follows what other processes change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.formats import one_line
from hashgrove.web.collection import Collection
from hashgrove.web.opening import refresh
from hashgrove.web.service import Service
from hashgrove.web.warming import warm_up

__all__ = ["Application", "Current", "answer_lifespan"]

log = logging.getLogger("hashgrove")

SECONDS = 1.0  # between two looks at what other processes have changed


class Application(NamedTuple):
    """The service of a collection, and its routes."""

    service: Service
    routes: ASGIApp


class Current:
    """Answers requests by the application of a collection, and refreshes it.

    Where another process adds items, the collection takes them in. Where it has put codes of another model in the
    place of the index, the collection is opened anew, and requests that have begun are answered by the old one.

    Parameters
    ----------
    make : function
        From a collection to its application.
    collection : Collection
    reopen : function, optional
        Opens the collection anew.
    """

    def __init__(
        self,
        make: Callable[[Collection], Application],
        collection: Collection,
        reopen: Callable[[], Collection] | None = None,
    ) -> None:
        self._make, self._reopen = make, reopen
        self.now = make(collection)
        self._failure = ""
        self._old: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await answer_lifespan(self.running(), receive, send)
        else:
            await self.now.routes(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve: prepare the index, and look for changes of other processes until the end."""
        self.now.service.collection.index.prepare(wait=False)  # until it is done, requests are answered by a scan
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            for task in (watching, *self._old):
                with suppress(asyncio.CancelledError):
                    task.cancel()
                    await task
            self.now.service.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self.refresh()
                self._failure = ""
            except Exception as error:  # such as a folder that is being replaced: what was read of it stays
                if (said := one_line(error)) != self._failure:
                    log.warning("What other processes have changed cannot be read: %s", said)
                self._failure = said

    async def refresh(self) -> bool:
        """Take in what other processes have changed; return whether there was anything."""
        old = self.now.service
        try:
            return bool(await old.encoding.run(lambda: refresh(old.collection)))
        except ParameterError:  # codes of another model
            if self._reopen is None:
                raise
        collection = await asyncio.to_thread(self._opened)
        self.now = self._make(collection)
        collection.index.prepare(wait=False)
        log.warning("%s: opened anew, with the model of its codes", collection.name)
        closing = asyncio.create_task(self._close_later(old))
        self._old.add(closing)
        closing.add_done_callback(self._old.discard)
        return True

    def _opened(self) -> Collection:
        assert self._reopen is not None
        collection = self._reopen()
        warm_up(collection)
        return collection

    @staticmethod
    async def _close_later(service: Service) -> None:
        """Close a service when all of its requests have been answered, or have taken too long."""
        try:
            await asyncio.sleep(2 * service.limits.seconds)
        finally:
            service.close()


async def answer_lifespan(running: AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    """Enter a context when the server starts, and leave it when the server stops."""
    await receive()
    try:
        await running.__aenter__()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": one_line(error)})
        raise
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await running.__aexit__(None, None, None)
    await send({"type": "lifespan.shutdown.complete"})
