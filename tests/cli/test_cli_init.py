"""`loadgen init`: files that the other commands take, and nothing overwritten."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from loadgen.cli import main
from loadgen.replay.options import read_workload, resolve
from loadgen.report.slo import read_slo

ANSWERS = ["--host", "http://gpu:8000/v1", "--corpus", 'C:\\re"po\u00e4', "--ttft", "6.5"]


@pytest.mark.parametrize("ci", ["github", "gitlab", "none"])
def test_the_files_are_valid_for_those_who_read_them(tmp_path: Path, ci: str) -> None:
    assert main(["init", *ANSWERS, "--ci", ci, "-o", str(tmp_path)]) == 0
    workload = read_workload(tmp_path / "workload.toml")
    options = resolve({}, workload)
    assert (workload["host"], options.corpus, options.sessions) == ("http://gpu:8000/v1", 'C:\\re"poä', 10)
    (ttft, _) = read_slo(tmp_path / "slo.toml").slo
    assert (ttft.metric, ttft.group, ttft.percentile, ttft.max_s) == ("ttft", "reuse", 90, 6.5)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    job = {"github": ".github/workflows/loadgen.yml", "gitlab": "loadgen.gitlab-ci.yml"}.get(ci)
    assert written == {"workload.toml", "slo.toml"} | ({job} if job else set())
    if job:
        text = (tmp_path / job).read_text()
        assert "loadgen gate runs --slo slo.toml" in text
        assert "{{{" not in text
        assert yaml.safe_load(text)


def test_the_ci_that_is_there_is_recognized(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").touch()
    assert main(["init", *ANSWERS, "-o", str(tmp_path)]) == 0
    assert (tmp_path / "loadgen.gitlab-ci.yml").exists()


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slo.toml").write_text("mine")
    assert main(["init", *ANSWERS, "-o", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["slo.toml"]


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--ttft", "0"), ("--ttft", "nan"), ("--ttft", "-3"), ("--host", "http://"), ("--host", "http://k:v@h")],
)
def test_answers_that_make_no_sense(tmp_path: Path, flag: str, value: str) -> None:
    answers = ANSWERS.copy()
    answers[answers.index(flag) + 1] = value
    assert main(["init", *answers, "-o", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())


def test_questions_are_asked_where_somebody_can_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = iter(["http://127.0.0.1:9", "", "3"])
    monkeypatch.setattr("builtins.input", lambda _: next(replies))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert main(["init", "-o", str(tmp_path)]) == 0
    assert tomllib.loads((tmp_path / "workload.toml").read_text())["trace"]["corpus"] == "stdlib"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main(["init", "-o", str(tmp_path / "other")]) == 2
    assert "give --host URL" in capsys.readouterr().err
