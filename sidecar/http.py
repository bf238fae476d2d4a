"""HTTP for orchestrators and scrapers: /healthz, /readyz, /metrics."""

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sidecar.gate import GateBoard

# Keeps a slow or hostile client from holding a connection for ever.
KEEPALIVE_S = 15.0


class HttpServer:
    """Serves on one address from `start` until `stop`."""

    def __init__(self, gates: GateBoard, metrics: CollectorRegistry) -> None:
        self._gates = gates
        self._metrics = metrics
        application = web.Application(client_max_size=1024)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics_page)
        self._runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=KEEPALIVE_S, handle_signals=False
        )

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which is another one where `port` is 0.

        Raises:
            OSError: the address cannot be bound.

        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Ends all connections."""
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        """The process lives and its loop turns."""
        del request
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        """200 if all gates, or that of ``?worker=NAME``, are open; 503 with reasons if not."""
        name = request.query.get("worker")
        if name is None:
            state = self._gates.overall()
        else:
            found = self._gates.state(name)
            if found is None:
                return web.json_response(
                    {"ready": False, "reason": f"worker {name!r} is not known"}, status=404
                )
            state = found
        return web.json_response(
            {"ready": state.open, "reason": state.reason}, status=200 if state.open else 503
        )

    async def _metrics_page(self, request: web.Request) -> web.Response:
        del request
        # In the loop: the gauges are read from state that only it may look at.
        page = generate_latest(self._metrics)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})
