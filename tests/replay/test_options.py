"""Flags, environment and workload files: one table, one precedence, and no flag without effect."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from loadgen.errors import InputError
from loadgen.replay import options


def parsed(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    options.add_flags(parser)
    return vars(parser.parse_args(words))


def test_defaults() -> None:
    found = options.resolve(parsed())
    assert (found.schedule, found.width, found.answers, found.nonce_scope) == (
        "sweep",
        1,
        "recorded",
        "session",
    )


def test_flags_win_over_environment_over_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = {"arm": "file", "seed": 1, "turns": 3}
    monkeypatch.setenv("LOADGEN_ARM", "env")
    monkeypatch.setenv("LOADGEN_SEED", "2")
    found = options.resolve(parsed("--arm", "flag"), workload)
    assert (found.arm, found.seed, found.turns) == ("flag", 2, 3)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--width", "2", "--schedule", "closed"], "--width has no effect with --schedule closed"),
        (["--rate", "2"], "--rate has no effect with --schedule sweep"),
        (["--schedule", "open"], "needs --rate"),
        (["--sessions", "0"], "--sessions must be at least 1"),
        (["--trace", "t", "--context-tokens", "5"], "--context-tokens has no effect with --trace"),
        (["--trace", "t", "--contexts", "d"], "exclude each other"),
        (["--gap-scale", "-1"], "must not be negative"),
        (["--turn-timeout", "0"], "must be above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], part: str) -> None:
    with pytest.raises(InputError, match=part):
        options.resolve(parsed(*words))


def test_a_workload_file_is_read_in_tables(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text('host = "x"\n[schedule]\nschedule = "closed"\nstagger = 2\n[trace]\nsessions = 4\n')
    found = options.resolve(parsed(), options.read_workload(path))
    assert (found.schedule, found.stagger, found.sessions) == ("closed", 2.0, 4)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sesions = 4", "unknown key 'sesions'"),
        ("sessions = ", "not valid TOML"),
        ('sessions = "four"', "should be a int"),
    ],
)
def test_a_bad_workload_file_is_refused(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=part):
        options.resolve(parsed(), options.read_workload(path))


def test_arguments_give_the_options_back() -> None:
    found = options.resolve(parsed("--arm", "a", "--natural-output", "--schedule", "open", "--rate", "2.5"))
    assert options.resolve(parsed(*options.to_arguments(found))) == found
