"""`Several`: several indexes in one service. The paths of each begin with its name; ``/`` leads to the first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hashgrove._version import __version__
from hashgrove.web.answers import as_json
from hashgrove.web.current import answer_lifespan
from hashgrove.web.errors import ServiceError
from hashgrove.web.guard import Guard

__all__ = ["RootPath", "Several"]


def below(scope: Scope, start: str) -> dict[str, Any]:
    """The scope of a request without the start of its path, which the access log still shows.

    >>> scope = below({"path": "/photos/items"}, "/photos")
    >>> scope["path"], scope["hashgrove.start"]
    ('/items', '/photos')
    """
    begun = scope.get("hashgrove.start", "") + start
    return {**scope, "path": scope["path"].removeprefix(start), "raw_path": None, "hashgrove.start": begun}


class RootPath:
    """Removes the start of each path under which a proxy shows the service; other paths stay as they are.

    Parameters
    ----------
    app : ASGI application
    start : str
        Such as ``/codes``.
    """

    def __init__(self, app: ASGIApp, start: str) -> None:
        self.app, self.start = app, start

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].startswith(f"{self.start}/"):
            await self.app(below(scope, self.start), receive, send)
        else:
            await self.app(scope, receive, send)


class Several:
    """Passes each request on to the application whose name its path begins with.

    Parameters
    ----------
    applications : mapping from str to Guard
        As `create_app` makes them, by name.
    """

    def __init__(self, applications: Mapping[str, Guard]) -> None:
        self.applications = applications

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await answer_lifespan(self.running(), receive, send)
            return
        name, slash, _ = scope["path"].removeprefix("/").partition("/")
        if name in self.applications and slash:
            await self.applications[name](below(scope, f"/{name}"), receive, send)
            return
        first: Any = next(iter(self.applications.values()))
        await first.answer(self._own, scope, receive, send)

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a path of no index."""
        path = scope["path"]
        inside: ASGIApp
        if path == "/":
            inside = RedirectResponse(f"{next(iter(self.applications))}/", 307)  # relative, as a proxy may add to it
        elif path.removeprefix("/") in self.applications:
            inside = RedirectResponse(f"{path.removeprefix('/')}/", 307)
        elif path == "/health":
            inside = as_json({"status": "ok", "version": __version__, "indexes": [*self.applications]})
        else:
            raise ServiceError(404, f"Paths begin with the name of an index: {', '.join(self.applications)}.")
        await inside(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve all of them."""
        async with AsyncExitStack() as stack:
            for guard in self.applications.values():
                await stack.enter_async_context(guard.app.running())  # type: ignore[attr-defined]
            yield
