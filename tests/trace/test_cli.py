"""`loadgen trace …` as a user types it: exit codes, one sentence for bad input, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.trace.synthesis.conform import FIGURES
from tests.trace import fixtures


@pytest.fixture
def weka(tmp_path: Path) -> Path:
    out = tmp_path / "weka.jsonl.zst"
    assert main(["trace", "import", str(fixtures.write(tmp_path / "in", "weka")), "-o", str(out)]) == 0
    return out


def test_import_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fixtures.write(tmp_path / "in", "claude-code")
    assert main(["trace", "import", str(folder), "-o", str(tmp_path / "t.jsonl")]) == 0
    text = capsys.readouterr().out
    assert "2 sessions (1 sub-agents), 3 turns from 2 claude-code files" in text
    assert "skipped: 1 × row of unknown type hologram" in text
    assert main(["trace", "import", str(folder), "-o", str(tmp_path / "t.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["turns"] == 3


def test_show(weka: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capsys.readouterr()
    page = tmp_path / "page.html"
    assert (
        main(
            [
                "trace",
                "show",
                str(weka),
                "--json",
                "--concurrency",
                "2",
                "--kv-bytes",
                "1e5",
                "--tier",
                "hbm=1",
                "--html",
                str(page),
            ]
        )
        == 0
    )
    figures = json.loads(capsys.readouterr().out)
    assert {
        key: figures[key]
        for key in (
            "sessions",
            "sub_agents",
            "turns",
            "input_tokens",
            "output_tokens",
            "compactions",
            "breaks",
        )
    } == {
        "sessions": 2,
        "sub_agents": 1,
        "turns": 5,
        "input_tokens": 1320,
        "output_tokens": 90,
        "compactions": 0,
        "breaks": 1,
    }
    # 3 + 3 + 5 shared blocks of 64 tokens
    assert figures["ideal_hit_share"] == pytest.approx(11 * 64 / 1320)
    rows = figures["residency"]["curve"]
    assert [row["hit_share"] for row in rows] == sorted(row["hit_share"] for row in rows)
    assert rows[-1]["tier"] == "hbm"
    assert "<script" in page.read_text()
    assert "http" not in page.read_text().split("<script>")[0]
    assert main(["trace", "show", str(weka), "--model", "llama-3.1-8b"]) == 0
    assert "hit share against cache size" in capsys.readouterr().out


def test_a_name_with_markup_is_only_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "<script>alert(1)</script>[bold]x"
    folder = fixtures.write(tmp_path / "in", "codex")
    assert main(["trace", "import", str(folder), "-o", str(tmp_path / "t.jsonl"), "--name", name]) == 0
    assert main(["trace", "show", str(tmp_path / "t.jsonl"), "--html", str(tmp_path / "p.html")]) == 0
    assert "<script>alert" not in (tmp_path / "p.html").read_text()
    assert name in capsys.readouterr().out.replace("\n", "")


def test_validate(weka: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["trace", "validate", str(weka)]) == 0
    assert "a valid trace of version 1, 2 sessions, 5 turns" in capsys.readouterr().out
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(
        b'{"type":"trace","version":1,"fidelity":"messages"}\n{"type":"session","id":"a"}\n{"type":"turn","session":"a","ind'
    )
    assert main(["trace", "validate", str(bad)]) == 2
    error = capsys.readouterr().err
    assert error == f"loadgen: {bad}:3: the last line is cut off; the file was not written to its end\n"
    assert main(["trace", "show", str(bad)]) == 2


def test_the_way_round(weka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["export", str(weka), "--to", "weka", "-o", str(tmp_path / "w.jsonl")],
        ["anonymize", str(weka), "-o", str(tmp_path / "a.jsonl")],
        ["synth", "--resample", str(weka), "--sessions", "3", "-o", str(tmp_path / "r.jsonl")],
        ["synth", "--profile", "heavy", "--sessions", "30", "-o", str(tmp_path / "s.jsonl.gz")],
        ["fit", str(tmp_path / "s.jsonl.gz"), "--sessions", "30", "-o", str(tmp_path / "p.json")],
        ["synth", "--profile", str(tmp_path / "p.json"), "--sessions", "2", "-o", str(tmp_path / "t.jsonl")],
        ["validate", str(tmp_path / "a.jsonl"), str(tmp_path / "r.jsonl"), str(tmp_path / "t.jsonl")],
    ):
        assert main(["trace", *arguments]) == 0, arguments
    assert "figures outside the source's bootstrap interval" in capsys.readouterr().out.replace("\n", " ")


def test_a_hold_out_says_what_a_perfect_model_would_come_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, profile = str(tmp_path / "s.jsonl"), str(tmp_path / "p.json")
    assert main(["trace", "synth", "--profile", "benchmark", "--sessions", "40", "-o", trace]) == 0
    fit = ["trace", "fit", trace, "--holdout", "--sessions", "20", "-o", profile]
    capsys.readouterr()
    assert main(fit) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "fitted half" in printed
    assert "compared with the other half the fitted half itself: " in printed
    assert main([*fit, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == {*FIGURES} - {"human gap p50 s", "human gap p90 s"}
    assert all(
        row["fitted_half_inside"] == (row["low"] <= row["fitted_half"] <= row["high"])
        for row in rows
        if row["fitted_half"] is not None and row["low"] is not None
    )
    assert main([arg for arg in fit if arg != "--holdout"] + ["--json"]) == 0
    assert {row["fitted_half"] for row in json.loads(capsys.readouterr().out)} == {None}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "NONE"], "cannot be read"),
        (["export", "WEKA", "--to", "vllm", "-o", "x"], "holds no text"),
        (["anonymize", "WEKA", "-o", "x", "--block-size", "0"], "--block-size must be at least 1"),
        (["show", "WEKA", "--tier", "hbm=1"], "--tier needs --model or --kv-bytes"),
        (["show", "WEKA", "--tier", "hbm", "--kv-bytes", "1"], "--tier wants NAME=GB"),
        (["show", "WEKA", "--tier", "hbm=-3", "--kv-bytes", "1"], "above 0"),
        (["show", "WEKA", "--model", "llama-3.1-8b", "--kv-bytes", "1"], "give one"),
        (["show", "WEKA", "--model", "nobody"], "no model is called"),
        (["show", "WEKA", "--concurrency", "0"], "at least 1"),
        (["synth", "--profile", "heavy"], "say where to write"),
        (
            ["synth", "--profile", "heavy", "--turns", "3", "-o", "x"],
            "--turns has no effect without contexts",
        ),
        (
            ["synth", "--resample", "WEKA", "--cap-tool", "3", "-o", "x"],
            "--cap-tool has no effect with --resample",
        ),
        (["synth", "--profile", "heavy", "--rate", "0", "-o", "x"], "--rate must be above 0"),
        *(
            (["synth", "--profile", "heavy", flag, given, "-o", "x"], f"{flag} must be ")
            for flag, wrong in (
                ("--rate", ("nan", "inf", "-1", "1e-300")),
                ("--max-prompt", ("-10", "0", "9" * 30)),
                ("--first-prompt", ("-1", "0", "9" * 400)),
                ("--sessions", ("0", "-3")),
                ("--seed", ("-1",)),
            )
            for given in wrong
        ),
        (["synth", "--resample", "WEKA", "--rate", "nan", "-o", "x"], "--rate must be above 0"),
        (["synth", "--resample", "WEKA", "--seed", "-1", "-o", "x"], "--seed must be from 0"),
        (["fit", "WEKA", "--shared-prefix", "-5", "-o", "x"], "--shared-prefix must be from 0"),
        (["fit", "WEKA", "--seed", "-1", "-o", "x"], "--seed must be from 0"),
        (["fit", "WEKA", "--sessions", "9", "-o", "x"], "--sessions must be from 10"),
        (
            ["fit", "WEKA", "-o", "x"],
            "sessions from their start (first prompt below 40,000 tokens) with 4 turns; a fit needs 10 and 100",
        ),
        (["fit", "WEKA", "--holdout", "-o", "x"], "one half of "),
        (["fill", "WEKA", "--corpus", "stdlib", "--per-message", "-1", "-o", "x"], "--per-message must be"),
        (["fill", "WEKA", "--corpus", "stdlib", "--seed", "-1", "-o", "x"], "--seed must be from 0"),
        (["anonymize", "WEKA", "-o", "x", "--block-size", "9" * 30], "--block-size must be at least 1"),
        (["show", "WEKA", "--kv-bytes", "nan"], "--kv-bytes must be above 0"),
        (["show", "WEKA", "--cap-human", "nan"], "a cap on gaps must be 0 or more"),
        (["synth", "NONE"], "manifest.json"),
        (["import", "NONE", "-o", "x"], "does not exist"),
        (["import", "WEKA", "-o", "x"], "is a trace of loadgen already"),
        (["show", "WEKA", "--cap-human", "-1"], "a cap on gaps must be 0 or more"),
        (["synth", "--profile", "heavy", "--cap-tool", "-1", "-o", "x"], "a cap on gaps must be 0 or more"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    weka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    capsys.readouterr()
    names = {"WEKA": str(weka), "NONE": str(tmp_path / "none"), "x": str(tmp_path / "x")}
    assert main(["trace", *(names.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("loadgen: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert not (tmp_path / "x").exists()
