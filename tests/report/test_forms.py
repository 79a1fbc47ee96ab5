"""The forms of a report: complete, offline, and deaf to markup in what traces and servers say."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console
from synthetic import sweep

from loadgen.cli import main
from loadgen.measure.sample import ErrorClass
from loadgen.report import build
from loadgen.report.html import asset
from loadgen.report.summary import summarize
from loadgen.report.table import render_arms

MakeRun = Callable[..., Path]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>[red]&|*_`\x1b[31m"


class Page(HTMLParser):
    """Tags, attributes and the JSON of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data = ""
        self.text = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open = "data" if ("id", "data") in attrs else tag

    def handle_data(self, data: str) -> None:
        if self._open == "data":
            self.data += data
        elif self._open not in ("script", "style"):
            self.text += data


def evil_run(make_run: MakeRun) -> Path:
    samples = list(sweep(arm=EVIL, sessions=4, turns=6))
    for sample in samples:
        sample.session = f"{EVIL}{sample.session}"
        sample.worker = "w0"
    samples[-1].error, samples[-1].message = ErrorClass.STREAM_ERROR, EVIL
    return make_run(
        samples,
        arm=EVIL,
        simulated=EVIL,
        scale=20.0,
        arguments=["--x", EVIL],
        notes=[EVIL],
        workload={"name": EVIL},
    )


def test_the_page_needs_nothing_and_executes_nothing_foreign(make_run: MakeRun) -> None:
    folder = evil_run(make_run)
    build(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 3  # data, uPlot, ours
    assert "img" not in page.tags
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "onerror", "onload", "action"}
    assert not re.search(
        r"url\((?!#)|@import|fetch\(|XMLHttpRequest|sendBeacon|localStorage",
        asset("report.js") + asset("report.css"),
    )
    assert json.loads(page.data)["arms"][0]["arm"] == EVIL  # there, and only as data
    assert "alert(1)" in page.text  # escaped text is shown as it is
    assert len(text) < 3_000_000


def test_vendored_files_are_those_that_the_note_names() -> None:
    for line in re.findall(r"([0-9a-f]{64})  (\S+)", asset("VENDORED.md")):
        assert hashlib.sha256(asset(line[1]).encode()).hexdigest() == line[0]
    assert "MIT" in asset("uPlot.LICENSE")


def test_every_chart_of_the_page_has_its_function(make_run: MakeRun) -> None:
    folder = make_run(sweep())
    build(folder)
    charts = re.findall(r'data-chart="(\w+)"', (folder / "report.html").read_text())
    assert {"spectrum", "by_turn", "timeline", "cached_share", "idle_time", "lanes"} <= set(charts)
    for name in charts:
        assert re.search(rf"^  {name}\(figure\) {{$", asset("report.js"), re.MULTILINE)


def rendered(*folders: Path) -> str:
    console = Console(file=io.StringIO(), width=120)
    render_arms(list(folders), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_arms_stand_side_by_side_with_speed_ups(make_run: MakeRun) -> None:
    off = make_run(sweep(arm="off", scale=20), name="off", arm="off", scale=20.0, simulated="blog")
    on = make_run(
        sweep(arm="offload", first_s=26, reuse_s=6.6, hit=139_776, scale=20),
        name="on",
        arm="offload",
        scale=20.0,
        simulated="blog",
    )
    text = rendered(off, on)
    assert "SIMULATED (blog at 20× real time)" in text
    lines = {line.strip().split("  ")[0]: line.split()[-3:] for line in text.splitlines()}
    assert re.search(r"TTFT, reuse turns: mean +22\.0 s +6\.60 s +3\.33×", text)
    assert re.search(r"TTFT, first turns: mean +22\.0 s +26\.0 s +0\.85×", text)
    assert re.search(r"TTFT, first turns: p90 +n<29 +n<29 +–", text)
    assert re.search(r"TPOT: mean +14\.5 ms +14\.5 ms +1\.00×", text)
    assert re.search(r"from external +0 \(0\.0 %\) +5\.59 M \(79\.6 %\)", text)
    assert re.search(r"expected reuse +5\.61 M \(79\.9 %\) +5\.61 M", text)
    assert lines["errors"][-2:] == ["0", "0"]
    assert "INVALID" not in text


def test_arms_with_other_work_get_no_speed_up(make_run: MakeRun) -> None:
    off, on = make_run(sweep(), name="off"), make_run(sweep(turns=4, reuse_s=6), name="on", arm="on")
    text = rendered(off, on)
    assert "NOT COMPARABLE" in text
    assert "10 turns exist in one arm only" in " ".join(text.split())
    assert "×" not in text


def test_invalid_is_said_with_its_remedy(make_run: MakeRun) -> None:
    text = rendered(make_run(sweep(), client=[]))
    assert "INVALID" in text
    assert "client-*.jsonl" in text


def test_the_terminal_shows_markup_as_text(make_run: MakeRun) -> None:
    text = rendered(evil_run(make_run))
    assert "[red]" in text
    assert "\x1b" not in text


def test_cli_report_in_every_form(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(sweep(reuse_s=6.6, hit=139_776))
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == summarize(folder)
    assert main(["report", str(folder), "--markdown"]) == 0
    assert "6.60 s on reuse turns" in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").is_file()
    assert main(["report", str(folder / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_damaged_input_is_one_sentence(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(sweep(sessions=2, turns=2))
    path = folder / "samples-w0.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    assert main(["report", str(folder)]) == 2
    assert "samples-w0.jsonl, line 1" in capsys.readouterr().err
    (folder / "run.json").write_text("{")
    assert main(["report", str(folder)]) == 2
    assert "run.json cannot be read" in capsys.readouterr().err


def test_a_run_of_failed_turns_still_reports(make_run: MakeRun) -> None:
    samples = list(sweep(sessions=3, turns=2))
    for sample in samples:
        sample.first_token_ns = sample.last_token_ns = sample.sent_ns = sample.output_tokens = (
            sample.prompt_tokens
        ) = None
        sample.cached_tokens = sample.tiers = None
        sample.error = ErrorClass.CONNECT
    folder = make_run(samples)
    build(folder)
    summary = summarize(folder)
    assert summary["groups"]["all"]["ttft_s"] == dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    assert "connect 6" in rendered(folder)


def test_waiting_is_shown_apart_from_ttft(make_run: MakeRun) -> None:
    samples = list(sweep(reuse_s=10, first_s=10))
    for sample in samples:
        sample.intended_ns -= 3_000_000_000
        sample.cap_wait_ns = 2_000_000_000
    folder = make_run(samples)
    assert re.search(r"TTFT from intended: mean +13\.0 s", rendered(folder))
    assert re.search(r"TTFT, all turns: mean +10\.0 s", rendered(folder))
    build(folder)
    assert (
        "turns left 3.00 s after their intended start on average, of which 2.00 s waiting"
        in (folder / "report.html").read_text()
    )
    assert "from intended" not in rendered(make_run(sweep(), name="punctual"))
