"""The runner: retries, resumption, giving up; `loadgen run` itself is played by a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plans import experiment

from loadgen.errors import InputError
from loadgen.experiment import runner as module
from loadgen.experiment.runner import Runner
from loadgen.experiment.server import Server
from loadgen.experiment.state import STATE_FILE, State, begin, resume


class Played(Runner):
    """Answers `loadgen run` from a list of exit codes (then 0) and notes every call."""

    def __init__(self, *args: Any, codes: list[int | BaseException], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.codes = codes
        self.reasons: list[list[str]] = []  # of the next runs' summaries
        self.calls: list[tuple[str, str]] = []  # (scope of the nonces, folder)

    def _loadgen(self, step: Any, url: str, workload: Any, scope: str, folder: Path, log: Path) -> int:
        self.calls.append((scope, folder.name))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("the last words\n")
        if self.reasons and "warm-up" not in scope:
            folder.mkdir(parents=True)
            codes = [{"code": code} for code in self.reasons.pop(0)]
            (folder / "summary.json").write_text(json.dumps({"valid": not codes, "reasons": codes}))
        code = 0 if "warm-up" in scope or not self.codes else self.codes.pop(0)
        if isinstance(code, BaseException):
            raise code
        return code


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prepare", lambda *_, **__: [])
    monkeypatch.setattr(module, "identify", lambda *_: {"engine": "vllm"})
    monkeypatch.setattr(Server, "answers", lambda *_: True)


def play(
    tmp_path: Path,
    codes: list[int | BaseException],
    state: State | None = None,
    reasons: list[list[str]] | None = None,
) -> tuple[Played, State, list[str]]:
    made = experiment(runs=2)
    for arm in made.spec.arms:
        arm.host = "http://127.0.0.1:9"
    folder = tmp_path / "e"
    kept = state or begin(made, folder)
    said: list[str] = []
    played = Played(made, kept, folder, yes=False, say=said.append, codes=codes)
    played.reasons = reasons or []
    try:
        played.run()
    except (InputError, KeyboardInterrupt) as error:
        said.append(f"{type(error).__name__}: {error}")
    return played, resume(None, folder), said


def codes_of(state: State) -> list[int | None]:
    return [result.code for result in state.results]


def test_every_step_runs_once_and_no_two_runs_share_a_nonce(tmp_path: Path) -> None:
    played, state, _ = play(tmp_path, [])
    assert codes_of(state) == [0, 0, 0, 0]
    assert len(set(played.calls)) == len(played.calls)
    assert {(result.previous_arm is None) for result in state.results[:1]} == {True}
    assert state.results[1].previous_arm == state.plan[0].arm
    assert state.results[0].server == {"engine": "vllm"}


def test_an_invalid_run_is_a_result_and_stays(tmp_path: Path) -> None:
    _, state, _ = play(tmp_path, [3])
    assert codes_of(state) == [3, 0, 0, 0]


def test_what_this_client_spoilt_is_repeated_once_and_the_clean_run_counts(tmp_path: Path) -> None:
    reasons = [["loop_lag"], [], ["coalesced_first_tokens"], ["send_late"], ["error_limit", "loop_lag"], []]
    played, state, _ = play(tmp_path, [], reasons=reasons)
    assert [len([r for r in state.results if r.index == n]) for n in range(4)] == [2, 2, 1, 1]
    assert [(state.done(step) or state.results[0]).attempt for step in state.plan] == [1, 1, 0, 0]
    assert len(set(played.calls)) == len(played.calls)


def test_a_run_that_breaks_off_is_tried_once_more_in_a_new_folder_under_new_nonces(tmp_path: Path) -> None:
    played, state, said = play(tmp_path, [70])
    assert codes_of(state) == [70, 0, 0, 0, 0]
    assert state.results[1].folder == f"{state.plan[0].folder}.a1"
    scopes = [scope for scope, _ in played.calls]
    assert scopes[0].rsplit("/", 1)[1] == "a0"
    assert scopes[1].rsplit("/", 1)[1] == "a1"
    assert any("the last words" in line for line in said)


def test_it_gives_up_when_nothing_works_and_resumes_where_it_was(tmp_path: Path) -> None:
    _, state, said = play(tmp_path, [70, 70, 70, 70])
    assert codes_of(state) == [70] * 4
    assert "stopped here" in said[-1]
    played, after, _ = play(tmp_path, [], state)
    assert codes_of(after) == [70] * 4 + [0] * 4
    assert [folder for _, folder in played.calls][:2] == [
        f"{Path(state.plan[0].folder).name}.a2",
        f"{Path(state.plan[1].folder).name}.a2",
    ]


def test_a_rejected_run_ends_it_at_once(tmp_path: Path) -> None:
    _, state, said = play(tmp_path, [2])
    assert codes_of(state) == [2]
    assert said[-1].startswith("InputError: ")
    assert "the last words" in said[-1]


def test_a_rejection_by_a_server_that_died_is_a_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "answers", lambda *_: False)
    _, state, _ = play(tmp_path, [2])
    assert codes_of(state) == [2, 0, 0, 0, 0]


@pytest.mark.parametrize("broken", [130, KeyboardInterrupt()])
def test_an_interrupt_keeps_the_state(tmp_path: Path, broken: int | BaseException) -> None:
    _, state, said = play(tmp_path, [0, broken])
    assert said[-1].startswith("KeyboardInterrupt")
    assert codes_of(state)[0] == 0
    assert state.done(state.plan[1]) is None
    _, after, _ = play(tmp_path, [], state)
    assert all(after.done(step) for step in after.plan)
    assert msgspec.json.decode((tmp_path / "e" / STATE_FILE).read_bytes())["version"] == 1
