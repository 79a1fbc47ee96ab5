"""A recording at a terminal: signals, the agent's process, the live table and what is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadgen.errors import EXIT_OK, InputError
from loadgen.record import view
from loadgen.record.recording import Options, Recording
from loadgen.record.scribe import Scribe

_REFRESH_S = 0.25


def record(options: Options, command: Sequence[str], *, show: bool, as_json: bool) -> int:
    """Record until Ctrl-C, SIGTERM, SIGHUP or the end of `command`; the exit code is 0, or that of `command`."""
    terminal = _Terminal(options, command, show=show, as_json=as_json)
    return terminal.run()


class _Terminal:
    def __init__(self, options: Options, command: Sequence[str], *, show: bool, as_json: bool) -> None:
        self._options = options
        self._command = list(command)
        self._json = as_json
        self._console = Console(stderr=True, highlight=False)
        self._live = (
            Live(console=self._console, auto_refresh=False) if show and self._console.is_terminal else None
        )
        self._recording = Recording(options)
        self._agent: subprocess.Popen[bytes] | None = None
        self._interrupts = 0
        self._shown_at = 0.0

    def run(self) -> int:
        ends = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            ends.append(signal.SIGHUP)
        before = {name: signal.signal(name, self._interrupt) for name in ends}
        try:
            scribe = self._recording.run(ready=self._ready, tick=self._tick, say=self._say)
        finally:
            if self._live is not None:
                self._live.stop()
            for name, handler in before.items():
                signal.signal(name, handler)
            if self._agent is not None and self._agent.poll() is None:
                self._agent.terminate()
        self._summary(scribe)
        return EXIT_OK if self._agent is None else self._agent_code(self._agent)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._recording.stop()

    def _ready(self, url: str) -> None:
        options = self._options
        if self._json:
            paths = {"trace": str(options.out), "calls": str(self._recording.journal)}
            print(json.dumps({"url": url, "upstream": options.upstream, **paths}), flush=True)
        elif not self._command:
            self._console.print(
                f"recording {options.upstream} to {options.out}; Ctrl-C ends it\n"
                f"  OpenAI clients     OPENAI_BASE_URL={url}/v1\n"
                f"  Claude Code        ANTHROPIC_BASE_URL={url}\n"
                f"  other agents       docs/recording.md",
                markup=False,
            )
        if self._live is not None:
            self._live.start()
        if self._command:
            self._start_agent(url)

    def _start_agent(self, url: str) -> None:
        addresses = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "LLM_BASE_URL": f"{url}/v1",
            "ANTHROPIC_BASE_URL": url,
        }
        try:
            self._agent = subprocess.Popen(self._command, env=os.environ | addresses)
        except OSError as error:
            raise InputError(f"{self._command[0]} cannot be started: {error.strerror or error}") from None

    def _tick(self, scribe: Scribe) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._shown_at >= _REFRESH_S:
            self._shown_at = now
            self._live.update(view.live(scribe.figures, scribe.size), refresh=True)
        if self._agent is not None and self._agent.poll() is not None:
            self._recording.stop()

    def _say(self, text: str) -> None:
        self._console.print(f"loadgen: {text}", markup=False, soft_wrap=True)

    def _summary(self, scribe: Scribe) -> None:
        size = self._options.out.stat().st_size if self._options.out.exists() else scribe.size
        if self._json:
            outcome = view.as_json(scribe.figures, size, scribe.secrets_replaced)
            print(json.dumps(outcome | {"stopped": scribe.stopped}), flush=True)
            return
        self._console.print(Text(f"{self._options.out}: {view.totals(scribe.figures, size)}"), soft_wrap=True)
        if scribe.secrets_replaced:
            self._console.print(Text(f"{scribe.secrets_replaced} different secrets replaced"))

    @staticmethod
    def _agent_code(agent: subprocess.Popen[bytes]) -> int:
        code = agent.wait()
        if code:
            print(f"loadgen: the agent ended with code {code}", file=sys.stderr)
        return code if code >= 0 else 128 - code
