"""Our tab in Locust's web UI, a page of its own beside it, and the Prometheus page: all of the same live figures.

Locust's tab stops with the run, because its page stops asking; ours at `/loadgen/` goes on. Everything is served from
the master's event loop, so the figures are made at most once a second.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import orjson
from flask import Blueprint, Response, request
from gevent.pywsgi import WSGIServer

from loadgen.observe import page as live_page
from loadgen.observe.live import Live, as_json, rows
from loadgen.observe.prometheus import CONTENT_TYPE
from loadgen.observe.prometheus import page as metrics_page
from loadgen.report.html import asset

if TYPE_CHECKING:
    from loadgen.replay.node import Node

KEY = "loadgen"
_FRESH_NS = 1_000_000_000
_COLUMNS = {"figure": "Figure", "first": "First turns", "reuse": "Reuse turns", "all": "All turns"}
_ASSETS = {"uPlot.iife.min.js": "text/javascript", "uPlot.min.css": "text/css", "report.css": "text/css"}


class Observer:
    """Live figures of a node's master, at most a second old."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: Live | None = None

    def live(self) -> Live | None:
        """None before the first run."""
        master = self._node.master
        if master is None or master.info is None:
            return None
        known = self._known
        fresh = (
            known is not None
            and known.info is master.info
            and known.state == master.info.state
            and monotonic_ns() - known.made_ns <= _FRESH_NS
        )
        if not fresh:
            states = master.allocator.states if master.allocator is not None and master.running else []
            begun = sum(state.started and not (state.done or state.cut or state.lost) for state in states)
            known = self._known = Live.of(master.info, master.latest, master.lost, begun)
        return known


def install(environment: Any, node: Node) -> None:
    """On the master: add the tab where there is a web UI, and serve metrics where `--metrics` says so."""
    if node.master is None:
        return
    observer = Observer(node)
    if environment.web_ui is not None:
        _add_to_ui(environment, observer)
    address = getattr(environment.parsed_options, "metrics", None)
    if address:
        _serve_metrics(str(address), observer)


def _add_to_ui(environment: Any, observer: Observer) -> None:
    ui = environment.web_ui
    base = (getattr(environment.parsed_options, "web_base_path", None) or "").rstrip("/")
    ui.template_args |= {
        "extended_tabs": [*ui.template_args.get("extended_tabs", []), {"title": "Agents", "key": KEY}],
        "extended_tables": [
            *ui.template_args.get("extended_tables", []),
            {"key": KEY, "structure": [{"key": key, "title": title} for key, title in _COLUMNS.items()]},
        ],
        "extended_csv_files": [
            *ui.template_args.get("extended_csv_files", []),
            {"href": f"{base}/loadgen/", "title": "loadgen: live page"},
            {"href": f"{base}/loadgen/live.json", "title": "loadgen: live figures as JSON"},
        ],
    }

    @ui.app.after_request  # type: ignore[untyped-decorator]
    def _(response: Response) -> Response:
        if request.path == f"{base}/stats/requests" and response.is_json:
            data = orjson.loads(response.get_data())
            kept = [table for table in data.get("extended_stats", []) if table.get("key") != KEY]
            data["extended_stats"] = [*kept, {"key": KEY, "data": rows(observer.live())}]
            response.set_data(orjson.dumps(data))
        return response

    blueprint = Blueprint(KEY, __name__, url_prefix=f"{base}/loadgen")

    @blueprint.route("/")
    @ui.auth_required_if_enabled  # type: ignore[untyped-decorator]
    def _page() -> Response:
        return Response(
            live_page.page(),
            headers={"Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'"},
        )

    @blueprint.route("/live.json")
    @ui.auth_required_if_enabled  # type: ignore[untyped-decorator]
    def _live() -> Response:
        live = observer.live()
        return Response(orjson.dumps(None if live is None else as_json(live)), mimetype="application/json")

    @blueprint.route("/metrics")
    @ui.auth_required_if_enabled  # type: ignore[untyped-decorator]
    def _metrics() -> Response:
        return Response(metrics_page(observer.live()), content_type=CONTENT_TYPE)

    @blueprint.route("/<name>")
    def _asset(name: str) -> Response:
        if name == "live.js":
            return Response(live_page.script(), mimetype="text/javascript")
        if name not in _ASSETS:
            return Response("there is no such file\n", status=404, mimetype="text/plain")
        return Response(asset(name), mimetype=_ASSETS[name])

    ui.app.register_blueprint(blueprint)


def _serve_metrics(address: str, observer: Observer) -> None:
    """Serve `/metrics` at `[HOST:]PORT` for as long as the process lives; exit 2 when that cannot be."""
    host, _, port = address.rpartition(":")

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] not in ("/", "/metrics"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"look at /metrics\n"]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [metrics_page(observer.live())]

    try:
        WSGIServer((host.strip("[]") or "127.0.0.1", int(port)), application, log=None).start()
    except (OSError, ValueError, OverflowError) as error:
        print(
            f"loadgen: metrics cannot be served at {address!r}: {error}; give --metrics [HOST:]PORT",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
