"""The HTTP server: authentication, dispatch, and every refusal as a Status body."""

from __future__ import annotations

import hmac
import logging
from typing import Final

from aiohttp import web

from localkube import bootstrap, discovery, requests, status, streams
from localkube.config import Config
from localkube.controllers.manager import Controllers
from localkube.handlers import Handlers, respond
from localkube.registry import Registry
from localkube.runtime import NodeRuntime
from localkube.status import ApiError
from localkube.store import Store

log = logging.getLogger(__name__)

_OPEN: Final = ("/livez", "/readyz", "/healthz")
_STREAMS: Final = ("exec", "portforward", "log")


class Server:
    """One localkube: store, API, controllers and the node behind them."""

    def __init__(self, config: Config, runtime: NodeRuntime) -> None:
        config.check()
        self.config = config
        self.runtime = runtime
        config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = Store(config.home / "store.db", history=config.watch_history)
        self.registry = Registry(self.store, runtime.check_pod)
        self.controllers = Controllers(self.registry, config)
        self.token = bootstrap.token(config.home)
        self.address = config.listen
        self._handlers = Handlers(self.registry)
        self._runner: web.ServerRunner | None = None
        self._ready = False

    async def start(self) -> None:
        """Listen, start controllers and node, and write `kubeconfig` and `ready` to the home folder."""
        (self.config.home / "ready").unlink(missing_ok=True)
        bootstrap.first_objects(self.registry)
        self._runner = web.ServerRunner(
            web.Server(self.serve, access_log=None, handler_cancellation=True), shutdown_timeout=0.2
        )
        await self._runner.setup()
        context = bootstrap.tls(self.config.home, self.config.host)
        site = web.TCPSite(self._runner, self.config.host, self.config.port, ssl_context=context)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        bootstrap.write_kubeconfig(self.config.home, self.address, self.token)
        self.controllers.start()
        await self.runtime.start(self.store, self.config)
        self._ready = True
        part = self.config.home / "ready.part"
        part.write_text(f"https://{self.address}\n")
        part.replace(self.config.home / "ready")  # who waits for the file never finds it empty

    async def stop(self) -> None:
        """Stop the node first (it ends its processes), then controllers, connections and the store."""
        self._ready = False
        (self.config.home / "ready").unlink(missing_ok=True)
        await self.runtime.stop()
        self.controllers.stop()
        if self._runner:
            await self._runner.cleanup()
        self.store.close()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever goes wrong leaves as a Status."""
        try:
            return await self._dispatch(request)
        except ApiError as error:
            response = respond(error.code, error.body)
            if error.code == 401:
                response.headers["WWW-Authenticate"] = 'Bearer realm="localkube"'
            return response
        except (ConnectionResetError, TimeoutError):
            raise
        except Exception as error:  # any fault must reach the client as a Status, and the log with its traceback
            log.exception("%s %s failed", request.method, request.path)
            return respond(500, ApiError(500, f"Internal error occurred: {type(error).__name__}: {error}").body)

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith(_OPEN):
            return self._health(path)
        self._authenticate(request)
        if path == "/":
            return respond(
                200, {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
            )
        if document := discovery.answer(path, self.store.resources, self.address):
            return respond(200, document)
        if review := await self._review(request):
            return review
        target = requests.parse_path(path, self.store.resources)
        if target is None:
            return web.Response(status=404, text="404 page not found\n")
        if target.subresource in _STREAMS:
            return await streams.serve(self.store, self.runtime, target, request)
        return await self._handlers.handle(request, target)

    def _health(self, path: str) -> web.Response:
        if path.startswith("/readyz") and not self._ready:
            return web.Response(status=500, text="[-]node failed: still starting\nreadyz check failed\n")
        return web.Response(text="ok")

    def _authenticate(self, request: web.BaseRequest) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            raise status.unauthorized()

    async def _review(self, request: web.BaseRequest) -> web.Response | None:
        """The review of one's own access: whoever holds the token may do everything."""
        if request.path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" or request.method != "POST":
            return None
        body = await requests.read_object(request, "SelfSubjectAccessReview")
        body |= {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        return respond(201, body | {"metadata": {}, "status": {"allowed": True}})
