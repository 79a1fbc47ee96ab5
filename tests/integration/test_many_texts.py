"""More texts in files beside the trace than a process may open by default."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from processes import Process, only_run, samples_in

from loadgen.trace.model import Header, Session, Turn
from loadgen.trace.writer import TraceWriter

TEXTS = 150


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """One session of one turn a text."""
    path = tmp_path / "texts.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="messages")) as writer:
        for number in range(TEXTS):
            text = f"Text {number}: " + "say more. " * 20
            (tmp_path / f"{number}.txt").write_text(text)
            ref = writer.file_blob(tmp_path / f"{number}.txt", hashlib.sha256(text.encode()).hexdigest())
            writer.session(Session(id=f"s{number}"))
            writer.turn(
                Turn(
                    session=f"s{number}",
                    index=0,
                    append=[{"role": "user", "content": {"blob": ref}}],
                    output_tokens=2,
                )
            )
            writer.end(f"s{number}")
    return path


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="maps keep no descriptor there")
def test_a_limit_that_the_texts_do_not_fit_into_is_said_before_the_first_request(
    endpoint: str, cache: Path, trace: Path, tmp_path: Path
) -> None:
    code, _, err = play(endpoint, cache, trace, tmp_path, "ulimit -n 180")
    assert code == 2
    assert "1 streams over 1 process and 150 texts need 215 open files" in err
    assert not list((tmp_path / "runs").glob("*/samples*"))


def test_the_soft_limit_is_no_limit(endpoint: str, cache: Path, trace: Path, tmp_path: Path) -> None:
    code, _, err = play(endpoint, cache, trace, tmp_path, "ulimit -S -n 128")
    assert code in (0, 3), err
    found = samples_in(only_run(tmp_path / "runs"))
    assert [sample["error"] for sample in found] == [None] * TEXTS


def play(endpoint: str, cache: Path, trace: Path, tmp_path: Path, limits: str) -> tuple[int, str, str]:
    words = ["run", "--host", endpoint, "--trace", str(trace), "--out", str(tmp_path / "runs")]
    command = ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", sys.executable, "-m", "loadgen", *words]
    return Process(command, cache).wait()
