"""Every step of a preparation is stamped with whether it was done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadgen.doctor import server_state
from loadgen.experiment import prepare as module
from loadgen.experiment.prepare import Stamp, clean_pages, prepare
from loadgen.experiment.spec import Prepare
from loadgen.replay.endpoint import Api
from loadgen.replay.wire.target import Target


class Page(BaseHTTPRequestHandler):
    """Serves `pages` one after another, the last one for ever, and answers resets with `answer`."""

    pages: list[str]
    answer: tuple[int, bytes]

    def log_message(self, *_: Any) -> None: ...

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        self._send(200 if page else 404, page.encode())

    def do_POST(self) -> None:
        self._send(*self.answer)


@pytest.fixture
def server() -> Iterator[type[Page]]:
    handler = type("Bound", (Page,), {"pages": [""], "answer": (404, b"{}")})
    with HTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        handler.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield handler
        http.shutdown()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_state, "_POLL_S", 0.01)
    monkeypatch.setattr(module, "_POLL_S", 0.01)


def page(running: int = 0, submitted: int | None = None, completed: int = 0) -> str:
    text = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n"
    if submitted is not None:
        text += f"lmcache_mp_l2_store_submitted_requests_total {submitted}\nlmcache_mp_l2_store_completed_requests_total {completed}\n"
    return text


def stamps(server: Any, steps: Prepare, *, fresh: bool = False, code: int = 0) -> dict[str, Stamp]:
    api = Api(Target.parse(server.url), None)
    return {stamp.step: stamp for stamp in prepare(api, steps, fresh=fresh, warm_up=lambda: code)}


def test_a_fresh_server_needs_no_reset(server: Any) -> None:
    server.pages = [page(0, 3, 3)]
    found = stamps(server, Prepare(), fresh=True)
    assert list(found) == ["restart", "warm-up", "drain"]
    assert all(stamp.done for stamp in found.values())


@pytest.mark.parametrize(
    ("answer", "done", "word"),
    [
        ((200, b'{"success":true}'), True, "says"),
        ((200, b'{"success":false}'), False, "without success"),
        ((200, b""), False, "without success"),
        ((404, b"{}"), False, "HTTP 404"),
    ],
)
def test_the_body_of_a_reset_is_read(server: Any, answer: tuple[int, bytes], done: bool, word: str) -> None:
    server.pages, server.answer = [page()], answer
    stamp = stamps(server, Prepare())["reset"]
    assert stamp.done is done
    assert word in stamp.detail


def test_draining_waits_for_turns_and_stores(server: Any) -> None:
    server.pages = [page(1, 5, 3), page(0, 5, 4), page(0, 5, 5)]
    stamp = stamps(server, Prepare())["drain"]
    assert stamp.done
    assert "all stores ended" in stamp.detail
    assert len(server.pages) == 1


@pytest.mark.parametrize(
    ("pages", "word"),
    [
        (["vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"], "3 requests in flight"),
        ([""], "no readable /metrics"),
        (["vllm:prompt_tokens_total 1\n"], "do not tell what is in flight"),
        ([page()], "do not tell whether stores"),
    ],
)
def test_what_cannot_be_proven_is_not_done(server: Any, pages: list[str], word: str) -> None:
    server.pages = pages
    stamp = stamps(server, Prepare(drain_timeout_s=0.05))["drain"]
    assert not stamp.done
    assert word in stamp.detail


def test_a_failed_warm_up_is_said_and_no_warm_up_is_none(server: Any) -> None:
    server.pages = [page()]
    assert not stamps(server, Prepare(), code=70)["warm-up"].done
    assert "warm-up" not in stamps(server, Prepare(warmup_turns=0))


def test_dirty_pages(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 10 kB\nDirty:  2000 kB\nWriteback: 1000 kB\n")
    assert clean_pages(4, 0.05, meminfo) == (True, "3 MB dirty")
    assert clean_pages(1, 0.05, meminfo)[0] is False
    assert clean_pages(1, 0.05, tmp_path / "none") == (False, "this machine does not tell its dirty pages")
