"""No importer fails on a damaged file: it imports what is left, or says in one sentence that nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.formats import registry
from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
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
