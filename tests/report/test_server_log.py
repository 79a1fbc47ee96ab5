"""Tiers that a server's log adds to a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import CONTEXT, sweep

from loadgen.cli import main
from loadgen.measure.sample import Sample, Tiers
from loadgen.report.server_log import TIERS_FILE
from loadgen.report.summary import summarize

MakeRun = Callable[..., Path]


def line(sample: Sample, external: int, total: int | None = None) -> str:
    total = total or sample.prompt_tokens
    return (
        f"[2026-11-29 12:29:10,951] LMCache INFO: Reqid: chatcmpl-{sample.request_id}-0badf00d, Total tokens {total}, "
        f"Inference Engine computed tokens: 0, LMCache hit tokens: {external}, need to load: {external} (x.py:1:x)\n"
    )


def unsourced(hit: int = 139_776) -> list[Sample]:
    samples = list(sweep(sessions=2, turns=2, hit=hit))
    for number, sample in enumerate(samples):
        sample.request_id = f"4f2a91c0-s{number}-0-1"
        if number:  # the first one keeps its source
            sample.tiers = sample.tier_source = None
    return samples


def test_a_log_sources_the_turns_that_have_none(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = unsourced()
    samples[0].tiers = Tiers(unknown=CONTEXT)
    folder = make_run(samples)
    before = (folder / "samples-w0.jsonl").read_bytes()
    log = folder.parent / "vllm.log"
    log.write_text(
        line(samples[0], 0)  # sourced already: its source stays
        + line(samples[1], 0)
        + line(samples[2], 139_776)
        + line(samples[3], 128)  # usage says 139,776
        + line(unsourced()[3], 0, total=5).replace("s3", "other")
    )
    assert summarize(folder)["tiers"]["external"] == 0
    assert main(["report", str(folder), "--server-log", str(log), "--json"]) == 0
    shown = capsys.readouterr()
    assert (
        "2 turns sourced from the log, 1 were before: 3 of 4 known; 1 left out, whose usage says otherwise"
        in shown.err
    )
    assert json.loads(shown.out)["tiers"] == {
        "compute": CONTEXT + 200 + CONTEXT - 139_776,
        "hbm": 0,
        "external": 139_776,
        "unknown": CONTEXT + CONTEXT + 200,
    }
    assert (folder / "samples-w0.jsonl").read_bytes() == before
    assert summarize(folder)["tiers"]["external"] == 139_776  # from then on, without the log
    stored = [json.loads(text) for text in (folder / TIERS_FILE).read_text().splitlines()]
    assert {one["tier_source"] for one in stored} == {"log"}

    log.write_text(line(samples[1], 0))
    assert main(["report", str(folder), "--server-log", str(log)]) == 0
    assert (
        "1 turns sourced from the log, 1 were before: 2 of 4 known; 2 are not in the log"
        in capsys.readouterr().err
    )
    assert summarize(folder)["tiers"]["external"] == 0  # replaced, not added to


def test_several_logs(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    samples = unsourced()
    folder = make_run(samples)
    for number in (1, 2):
        (folder.parent / f"{number}.log").write_text(line(samples[number], 139_776 if number > 1 else 0))
    logs = [word for n in (1, 2) for word in ("--server-log", str(folder.parent / f"{n}.log"))]
    assert main(["report", str(folder), *logs]) == 0
    assert "3 of 4 known" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["absent", "folder", "other"])
def test_what_is_no_log_is_refused(make_run: MakeRun, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    folder = make_run(unsourced())
    log = {"absent": folder / "none.log", "folder": folder, "other": folder / "run.json"}[kind]
    assert main(["report", str(folder), "--server-log", str(log)]) == 2
    said = capsys.readouterr().err
    assert ("cannot be read" if kind != "other" else "holds no lookups of LMCache") in said
    assert "Traceback" not in said
    assert not (folder / TIERS_FILE).exists()


def test_a_damaged_file_is_one_sentence(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(unsourced())
    (folder / TIERS_FILE).write_text('{"request_id": "x"}\n')
    assert main(["report", str(folder)]) == 2
    assert f"{TIERS_FILE}, line 1 is damaged" in capsys.readouterr().err
    (folder / TIERS_FILE).unlink()
    (folder / TIERS_FILE).mkdir()
    assert main(["report", str(folder)]) == 2
    assert "cannot be read (Is a directory)" in capsys.readouterr().err
