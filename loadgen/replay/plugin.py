"""loadgen inside Locust: its flags and its listeners. A locustfile imports `Agent` from here and is done."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import gevent
from locust import User, constant, events, task
from locust.exception import StopUser

from loadgen import lifeline
from loadgen.replay import options as run_options
from loadgen.replay import webui
from loadgen.replay.node import Node


class Agent(User):
    """A lane: asks for the next piece of work, plays it, asks again."""

    abstract = True
    wait_time = constant(0)

    @task
    def work(self) -> None:
        worker = self.environment.loadgen.worker
        grant, free_ns = worker.next()
        if grant.kind == "end":
            raise StopUser
        worker.play(grant, free_ns)


def _safe_defaults(parser: Any) -> None:
    """Servers bind to this machine unless the user says otherwise."""
    parser.set_defaults(web_host="127.0.0.1", master_bind_host="127.0.0.1")


def _add_flags(parser: Any, **_: Any) -> None:
    run_options.add_flags(parser)
    parser.add_argument(
        "--loadgen-job", default="", include_in_web_ui=False, help="set by the master for its workers"
    )
    _safe_defaults(parser)


def _start(environment: Any, **_: Any) -> None:
    node = environment.loadgen = Node(environment)
    webui.install(environment, node)
    # Registered here, after the runner's own listener, and `quitting` fires in reverse order: ours runs first.
    environment.events.quitting.add_listener(lambda **_: node.quitting())
    environment.events.test_start.add_listener(lambda **_: node.begin())
    environment.events.test_stopping.add_listener(lambda **_: node.stopping())
    if node.worker is not None:
        worker = node.worker

        def report_to_master(client_id: str, data: dict[str, Any], **_: Any) -> None:
            data["loadgen"] = worker.snapshot()

        environment.events.report_to_master.add_listener(report_to_master)
    if node.master is not None:
        master = node.master

        def worker_report(client_id: str, data: dict[str, Any], **_: Any) -> None:
            master.on_snapshot(client_id, data.get("loadgen") or {})

        environment.events.worker_report.add_listener(worker_report)
        if lifeline.taken():
            _end_with_starter()
    if os.environ.get("LOADGEN_QUIET"):
        # Locust's own tables round to two digits; under `loadgen run` ours stands in their place.
        logging.getLogger("locust.stats_logger").setLevel(logging.CRITICAL)


def _end_with_starter() -> None:
    """Do what SIGTERM does when `loadgen run` is gone: collect what the workers have, and end."""
    watcher = gevent.get_hub().loop.io(lifeline.STDIN, 1, ref=False)

    def readable() -> None:
        if not os.read(lifeline.STDIN, 4096):
            watcher.stop()
            os.kill(os.getpid(), signal.SIGTERM)

    watcher.start(readable)


_hooks: Any = events  # Locust's event hooks are untyped
_hooks.init_command_line_parser.add_listener(_add_flags)
_hooks.init.add_listener(_start)
