"""
The HTTP endpoint of the exporter: an event loop on a thread of its own, so that scrapes do not wait for a poll.

The text of the metrics is made once for each poll, however many scrapers ask, and compressed by gzip if they accept that.
"""

import asyncio
import gzip
import socket
import threading
import time

from kohort.model.errors import ConfigError
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.exporter.metrics import Snapshot
from kohort.scrape import ScrapeListener, text_of
from kohort.security.http_access import HttpAccess, is_loopback

ALIASES = {"/": "/metrics", "/healthz": "/health", "/-/healthy": "/health", "/readyz": "/ready", "/-/ready": "/ready"}
"""Names under which other exporters, Prometheus and Kubernetes serve the same."""
_BACKLOG = 512
_GZIP_LEVEL = 1
_LATE_INTERVALS = 3


class Endpoint:
    """Serves the metrics of an exporter. `port` is the listener's."""

    def __init__(
        self, exporter: Exporter, host: str, port: int, *, interval_s: float, token: str | None = None
    ) -> None:
        """
        Bind the address.

        Args:
            token: what scrapers show. Without one, metrics are served on a loopback address only.
            interval_s: between two polls. The endpoint is not ready if the last good poll is older than three intervals.

        Raises:
            ConfigError: the address is in use, or not of this machine.
        """
        self._exporter = exporter
        self._late_s = _LATE_INTERVALS * interval_s
        try:
            takes_both = host == "::" and socket.has_dualstack_ipv6()
            self._socket = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
                dualstack_ipv6=takes_both,
            )
        except OSError as exc:
            raise ConfigError(f"{host}:{port} cannot be listened at: {exc.strerror or exc}") from exc
        self.port = int(self._socket.getsockname()[1])
        self._listener = ScrapeListener(
            not_ready=self.not_ready,
            make_text=self._make_text,
            has_gzip=True,
            aliases=ALIASES,
            refuse=HttpAccess(token, is_local=is_loopback(self._socket.getsockname()[0])).refusal,
        )
        self._rendered: Snapshot | None = None
        self._texts: dict[bool, bytes] = {}
        self._rendering = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kohort-exporter-http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the listener, and wait for the end of its thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def not_ready(self) -> list[str]:
        """Return the reasons for which the metrics are not those of now."""
        now = self._exporter.snapshot
        if now is None:
            return ["Nothing was polled yet."]
        age_s = time.time() - now.polled_ms / 1000
        late = [f"The last good poll was {age_s:.0f} s ago."] if age_s > self._late_s + now.took_s else []
        return [*late, *now.problems]

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with await self._listener.start(sock=self._socket, backlog=_BACKLOG):
            await self._stopped.wait()

    async def _make_text(self, is_gzip: bool) -> bytes:
        """On another thread: probes are answered meanwhile."""
        return await asyncio.to_thread(self._render, is_gzip)

    def _render(self, is_gzip: bool) -> bytes:
        with self._rendering:
            now = self._exporter.snapshot
            if now is None or now is not self._rendered:
                self._rendered, self._texts = now, {False: b"".join(text_of(self._exporter.collect()))}
            if is_gzip not in self._texts:
                self._texts[True] = gzip.compress(self._texts[False], _GZIP_LEVEL)
            return self._texts[is_gzip]
