from __future__ import annotations

import json
import os
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import sweep

from loadgen.cli import main
from loadgen.errors import InputError
from loadgen.measure.sample import ErrorClass
from loadgen.report.compare import compare
from loadgen.report.gate import gate
from loadgen.report.sides import read_sides, split
from loadgen.report.slo import Rule, Slo, read_slo

MakeRun = Callable[..., Path]


def runs(
    make_run: MakeRun, folder: str, n: int, by: float = 1.0, *, sd: float = 0.03, **fields: object
) -> Path:
    """`n` runs of 10 x 5 turns whose reuse TTFT is 22 s times `by`, with a run-to-run spread."""
    generator = random.Random(folder)
    for r in range(n):
        reuse_s = 22.0 * by * generator.gauss(1, sd)
        path = make_run(sweep(reuse_s=reuse_s, rep=r), name=f"{folder}.r{r}", **fields)
        (path.parent / folder).mkdir(exist_ok=True)
        path.rename(path.parent / folder / f"r{r}")
    return path.parent / folder


def slo(**fields: object) -> Slo:
    return Slo(slo=[Rule(**fields)])  # type: ignore[arg-type]


def outcome(folder: Path, **fields: object) -> str:
    return gate([folder], slo(**fields)).checks[-1].outcome


def test_an_slo_passes_fails_or_stays_open(make_run: MakeRun) -> None:
    fast, slow = make_run(sweep(reuse_s=6.6), name="fast"), make_run(sweep(reuse_s=9), name="slow")
    assert outcome(fast, metric="ttft", group="reuse", percentile=90, max_s=8) == "pass"
    assert outcome(slow, metric="ttft", group="reuse", percentile=90, max_s=8) == "fail"
    assert outcome(fast, metric="ttft", group="reuse", percentile=99, max_s=8) == "inconclusive"  # 40 turns
    assert (
        outcome(fast, metric="ttft", group="rebuilt", percentile=90, max_s=8) == "inconclusive"
    )  # no such turns
    assert outcome(fast, metric="ttft", group="first", percentile=90, max_s=30) == "inconclusive"  # 10 turns


def test_goodput_counts_turns_within_every_limit(make_run: MakeRun) -> None:
    folder = make_run(sweep(reuse_s=6.6, first_s=20))
    assert outcome(folder, metric="goodput", ttft_s=25, tpot_s=0.02, min_share=0.9) == "pass"
    assert outcome(folder, metric="goodput", ttft_s=25, tpot_s=0.01, min_share=0.9) == "fail"
    assert outcome(folder, metric="goodput", ttft_s=8, min_share=0.95) == "fail"  # the ten first turns


def test_figures_are_compared_as_they_are(make_run: MakeRun) -> None:
    folder = make_run(sweep(hit=139_776))
    assert outcome(folder, metric="cached_share", group="reuse", min=0.95) == "pass"
    assert outcome(folder, metric="cached_share", group="reuse", min=0.9999) == "fail"
    assert outcome(folder, metric="cached_share", group="first", min=0.5) == "inconclusive"
    assert outcome(folder, metric="errors", max=0) == "pass"
    assert outcome(folder, metric="output_tokens_s", min=1000) == "fail"
    assert outcome(folder, metric="total_s", max=1e6) == "pass"


def test_failed_turns_are_over_every_limit(make_run: MakeRun) -> None:
    samples = list(sweep(sessions=100, turns=5))
    for sample in samples[-5:]:
        sample.error = ErrorClass.HTTP_5XX
    found = gate([make_run(samples)], slo(metric="ttft", percentile=90, max_s=3600))
    assert "5 of 500 turns" in found.checks[-1].sentence


def test_an_invalid_run_never_passes(make_run: MakeRun) -> None:
    folder = make_run(sweep(reuse_s=6.6), client=[])
    found = gate([folder], slo(metric="ttft", group="reuse", percentile=90, max_s=8))
    assert (found.outcome, found.exit_code) == ("invalid", 3)


@pytest.mark.parametrize(("by", "expected", "code"), [(1.0, "pass", 0), (1.2, "fail", 1), (0.5, "pass", 0)])
def test_regression_against_a_baseline(make_run: MakeRun, by: float, expected: str, code: int) -> None:
    found = gate([runs(make_run, "new", 5, by)], None, [runs(make_run, "old", 5)])
    assert (found.outcome, found.exit_code) == (expected, code)


def test_few_runs_are_inconclusive_until_history_tells_the_noise(make_run: MakeRun) -> None:
    old, new, history = runs(make_run, "old", 2), runs(make_run, "new", 2, 1.3), runs(make_run, "past", 9)
    assert gate([new], None, [old]).exit_code == 4
    assert gate([new], None, [old], [history]).exit_code == 1


def test_a_green_answer_needs_runs_that_could_have_been_red(make_run: MakeRun) -> None:
    found = gate([runs(make_run, "new", 5, sd=0.25)], None, [runs(make_run, "old", 5, sd=0.25)])
    assert found.outcome == "inconclusive"
    assert "must_find" in found.checks[-1].sentence


def test_other_work_is_no_comparison(make_run: MakeRun) -> None:
    old = runs(make_run, "old", 5)
    samples = list(sweep())
    for sample in samples:
        sample.output_tokens = 64
    new = make_run(samples, name="short")
    found = gate([new], None, [old])
    assert found.exit_code == 3
    assert "generated tokens" in found.checks[-1].sentence


def test_sides_are_arms_or_arguments(make_run: MakeRun) -> None:
    off, on = make_run(sweep(), name="a", arm="off"), make_run(sweep(arm="on"), name="b", arm="on")
    assert [label for label, _ in split([on, off])] == ["on", "off"]
    assert [label for label, _ in split([off.parent])] == ["off", "on"]
    assert [label for label, _ in split([off, on], "argument")] == ["a", "b"]
    with pytest.raises(InputError, match="given twice"):
        split([off, off.parent])


def test_no_difference_says_what_would_have_been_found(make_run: MakeRun) -> None:
    found = compare(*read_sides(split([runs(make_run, "old", 5), runs(make_run, "new", 5)])))
    assert found.outcome == "no difference shown"
    assert found.smallest is not None
    assert 0.08 < found.smallest < 0.25
    assert "nine times in ten" in found.sentence


def test_a_run_with_a_censored_turn_has_no_mean_to_compare(make_run: MakeRun) -> None:
    samples = list(sweep(sessions=100, turns=5))
    samples[-1].first_token_ns = samples[-1].last_token_ns = None
    samples[-1].error = ErrorClass.RESET
    broken, whole = make_run(samples, name="a"), make_run(sweep(sessions=100, turns=5), name="b")
    found = compare(*read_sides(split([whole, broken])))
    assert found.outcome == "inconclusive"
    assert found.primary is None


def test_tpot_is_an_invariant_at_width_one_only(make_run: MakeRun) -> None:
    for width, expected in ((1, True), (4, False)):
        schedule = {"kind": "sweep", "width": width}
        a = runs(make_run, f"old{width}", 3, schedule=schedule)
        b = runs(make_run, f"new{width}", 3, schedule=schedule)
        assert ("equal within" in compare(*read_sides(split([a, b]))).tpot) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[slo]]\nmetric='ttft'\npercentile=90", "rule 1: ttft takes percentile and max_s"),
        ("[[slo]]\nmetric='ttft'\npercentile=0.9\nmax=8", "rule 1: ttft takes percentile and max_s"),
        ("[[slo]]\nmetric='ttft'\npercentile=100\nmax_s=8", "between 0 and 100"),
        ("[[slo]]\nmetric='speed'", "speed"),
        ("[[slo]]\nmetric='errors'\nlimit=0", "limit"),
        ("[[slo]]\nmetric='errors'", "takes min, max or both"),
        ("[[slo]]\nmetric='goodput'\nmin_share=0.9", "goodput takes min_share with"),
        ("[regression]\ntolerance=-1", "tolerance"),
        ("slo = [", "not TOML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "slo.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_slo(path)


def test_cli_writes_every_form(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(sweep(reuse_s=6.6), arm="<b>|off\x07")
    rules = tmp_path / "slo.toml"
    rules.write_text('[[slo]]\nmetric="ttft"\ngroup="reuse"\npercentile=99\nmax_s=8\n')
    junit, markdown = tmp_path / "junit.xml", tmp_path / "summary.md"
    arguments = ["gate", str(folder), "--slo", str(rules), "--junit", str(junit), "--markdown", str(markdown)]
    assert main([*arguments, "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["exit_code"]) == ("inconclusive", 4)
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("tests"), suite.get("skipped"), suite.get("failures")) == ("2", "1", "0")
    assert "inconclusive" in markdown.read_text()
    assert main(arguments) == 4
    assert "INCONCLUSIVE" in capsys.readouterr().out


def test_cli_writes_over_nothing_that_it_reads(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off, on = make_run(sweep(), name="a", arm="off"), make_run(sweep(), name="b", arm="on")
    rules, fifo = tmp_path / "slo.toml", tmp_path / "fifo"
    rules.write_text('[[slo]]\nmetric="ttft"\ngroup="reuse"\npercentile=99\nmax_s=8\n')
    os.mkfifo(fifo)
    link = tmp_path / "link"
    link.symlink_to(off / "run.json")
    before = {path: path.read_bytes() for path in (rules, off / "run.json", on / "run.json")}
    for arguments in (
        ["gate", str(off), "--slo", str(rules), "--junit", str(rules)],
        ["gate", str(off), "--slo", str(rules), "--markdown", str(rules)],
        ["compare", str(off), str(on), "--html", str(on / "run.json")],
        ["compare", str(off), str(on), "-o", str(link)],
    ):
        assert main(arguments) == 2
        assert "is both read and written; choose another -" in capsys.readouterr().err
    for arguments in (
        ["gate", str(off), "--slo", str(rules), "--junit", str(fifo)],
        ["compare", str(off), str(on), "--html", str(fifo)],
    ):
        assert main(arguments) == 2
        assert "it is a pipe" in capsys.readouterr().err
    assert fifo.is_fifo()
    assert before == {path: path.read_bytes() for path in before}
    assert main(["compare", str(off), str(on), "--tolerance", "nan"]) == 2


def test_cli_compare_forms(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    off = make_run(sweep(arm="[red]<b>"), name="a", arm="[red]<b>")
    on = make_run(sweep(arm="on", reuse_s=6.6), name="b", arm="on")
    assert main(["compare", str(off), str(on)]) == 4  # one run a side shows nothing
    assert "[red]<b>" in capsys.readouterr().out
    assert main(["compare", str(off), str(on), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "inconclusive"
    assert main(["compare", str(off), str(on), "--markdown"]) == 4
    assert "<b>" not in capsys.readouterr().out
    assert main(["compare", str(off)]) == 2
    assert main(["compare", str(off), "/does/not/exist"]) == 2
