"""No importer fails on a damaged file: it imports what is left, or says in one sentence that nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.curve import curve
from loadgen.trace.formats import registry, rows
from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from loadgen.trace.summary import summarize
from loadgen.trace.timeline import Timeline
from loadgen.trace.tree import PrefixTree
from tests.trace import fixtures
from tests.trace.mutate import damage

NAMES = [form.name for form in registry.FORMATS]


def check(folder: Path, name: str, seed: int) -> None:
    for path, content in fixtures.FILES[name][0].items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(damage(content, seed))
    out = folder.parent / "out.jsonl"
    out.unlink(missing_ok=True)
    try:
        import_trace([folder], out, format_name=name)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - an InputError is one of two good outcomes
        assert not out.exists()
    else:
        open_trace(out).close()


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    for seed in range(30):
        check(tmp_path / "in", name, seed)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["weka", "claude-code", "azure"]), seed=st.integers(0, 2**32))
def test_a_damaged_trace_is_read_or_refused_in_one_sentence(tmp_path: Path, name: str, seed: int) -> None:
    path = tmp_path / "t.jsonl"
    import_trace([fixtures.write(tmp_path / name, name)], path)
    path.write_bytes(damage(path.read_bytes(), seed))
    try:
        with open_trace(path) as trace:
            for session in trace.sessions:
                assert len({turn.index for turn in trace.turns(session.id)}) == trace.turn_count(session.id)
            summarize(trace)
            if trace.header.fidelity != "lengths":
                curve(PrefixTree(trace), Timeline(trace))
    except InputError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


def test_lines_beyond_the_limit_are_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"
    first, *rest = fixtures.MOONCAKE.splitlines(keepends=True)
    path.write_bytes(first + b"x" * 5000 + b"\n" + b"".join(rest))
    monkeypatch.setattr(rows, "MAX_LINE", 1000)
    done = import_trace([path], tmp_path / "o.jsonl", format_name="mooncake")
    assert done.counts["turns"] == 3
    assert sum(done.report.skipped.values()) == 1


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="no regular file"):
        open_trace(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        import_trace([tmp_path / "pipe.jsonl"], tmp_path / "o.jsonl")
    with pytest.raises(InputError, match="no file of a known format"):
        import_trace([tmp_path], tmp_path / "o" / "o.jsonl")


@pytest.mark.nightly
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_damaged_files_at_length(tmp_path: Path, name: str, seed: int) -> None:
    check(tmp_path / "in", name, seed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES), data=st.binary(max_size=300))
def test_noise(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / (
        "opencode.db"
        if name == "opencode"
        else "api_conversation_history.json"
        if name == "cline-task"
        else "noise.jsonl"
    )
    path.write_bytes(data)
    out = tmp_path / "o" / "out.jsonl"
    try:
        import_trace([path], out, format_name=name)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        open_trace(out).close()
        out.unlink()
