"""`loadgen explain` knows everything that a report may say."""

from __future__ import annotations

import json

import pytest

from loadgen import errors
from loadgen.cli import main
from loadgen.measure.sample import ErrorClass
from loadgen.report.meanings import meanings
from loadgen.report.validity import Code


def test_every_reason_error_and_exit_code_has_a_meaning_and_a_remedy() -> None:
    found = {meaning.name: meaning for meaning in meanings()}
    exits = {str(value) for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(found) == set(Code) | set(ErrorClass) | exits
    for meaning in found.values():
        assert meaning.sentence.endswith(".")
        assert meaning.remedy.endswith((".", "."))


@pytest.mark.parametrize("word", ["loop_lag", "LOOP-LAG", "http_4xx", "3"])
def test_a_code_is_explained_however_it_is_written(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert "What to do:" in capsys.readouterr().out


def test_an_unknown_code_gets_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "loop_lagg"]) == 2
    assert "did you mean loop_lag" in capsys.readouterr().err
    assert main(["explain", "[bold]zzz"]) == 2
    assert "`loadgen explain` lists everything" in capsys.readouterr().err


def test_everything_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(list(meanings()))
