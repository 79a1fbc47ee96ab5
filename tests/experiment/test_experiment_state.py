"""The state survives breaks, and never mixes two plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import experiment

from loadgen.errors import InputError
from loadgen.experiment.state import STATE_FILE, Result, begin, resume, save


def test_what_ended_is_done_and_what_broke_off_is_not(tmp_path: Path) -> None:
    state = begin(experiment(), tmp_path / "x")
    for index, code in ((0, 0), (1, 3), (2, 130), (3, None), (2, 0)):
        state.results.append(
            Result(
                index=index,
                attempt=state.attempts(state.plan[index]),
                folder=f"f{index}",
                started="",
                code=code,
            )
        )
    save(state, tmp_path / "x")
    again = resume(experiment(), tmp_path / "x")
    assert again.id == state.id
    assert [bool(again.done(step)) for step in again.plan[:5]] == [True, True, True, False, False]
    assert again.attempts(again.plan[2]) == 2
    assert again.attempts(again.plan[4]) == 0


def test_two_executions_of_one_file_have_different_nonces(tmp_path: Path) -> None:
    assert begin(experiment(), tmp_path / "a").id != begin(experiment(), tmp_path / "b").id


def test_mistakes(tmp_path: Path) -> None:
    begin(experiment(), tmp_path / "x")
    with pytest.raises(InputError, match="not empty"):
        begin(experiment(), tmp_path / "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be the folder"):
        begin(experiment(), tmp_path / "file")
    with pytest.raises(InputError, match="nothing to resume"):
        resume(experiment(), tmp_path / "y")
    changed = experiment()
    with pytest.raises(InputError, match="changed"):
        resume(
            type(changed)(spec=changed.spec, sha256="other", cells=changed.cells, primary="c0"),
            tmp_path / "x",
        )
    (tmp_path / "x" / STATE_FILE).write_text('{"id":')
    with pytest.raises(InputError, match="cannot be read"):
        resume(None, tmp_path / "x")
