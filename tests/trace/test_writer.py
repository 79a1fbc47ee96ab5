from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.model import Gap, Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter
from tests.trace.conftest import answer, user

HEADER = Header(version=1, fidelity="messages")


def simple(session: str, index: int) -> Turn:
    gap = Gap("tool", 0.5) if index else None
    return Turn(
        session=session, index=index, append=[user(f"{session}{index}")], answer=answer("ok"), gap=gap
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    order=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    suffix=st.sampled_from(["", ".gz", ".zst"]),
)
def test_interleaved_sessions_come_out_one_after_the_other(
    tmp_path: Path, order: list[str], suffix: str
) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    written: dict[str, list[Turn]] = {}
    with TraceWriter(path, HEADER) as writer:
        for name in order:
            if name not in written:
                written[name] = []
                writer.json_blob(f"system of {name}")
                writer.session(Session(id=name))
            written[name].append(simple(name, len(written[name])))
            writer.turn(written[name][-1])
        for name in written:
            writer.end(name)
    with open_trace(path) as trace:
        assert [s.id for s in trace.sessions] == list(written)
        assert {name: trace.turns(name) for name in written} == written
        assert all(
            len(ranges) == 2 for ranges in trace._ranges.values()
        )  # contiguous: a finished file is sorted
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    path.unlink()


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(InputError, match="no session record"), TraceWriter(path, HEADER) as writer:
        writer.turn(simple("a", 0))
    with pytest.raises(RuntimeError, match="mine"), TraceWriter(path, HEADER):
        raise RuntimeError("mine")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_file_survives_a_failed_write(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, HEADER) as writer:
        writer.session(Session(id="a"))
    before = path.read_bytes()
    with pytest.raises(InputError), TraceWriter(path, HEADER) as writer:
        writer.turn(simple("z", 0))
    assert path.read_bytes() == before


def test_live_lines_are_readable_at_once_and_taken_up_later(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, HEADER, live=True) as writer:
        ref = writer.json_blob("sys")
        writer.session(Session(id="a", system=ref))
        writer.turn(simple("a", 0))
        with open_trace(path) as trace:
            assert trace.turn_count("a") == 1
            assert trace.open_sessions() == ["a"]
    size = path.stat().st_size
    with TraceWriter(path, HEADER, live=True) as writer:
        assert writer.json_blob("sys") == ref
        assert path.stat().st_size == size
        writer.turn(simple("a", 1))
        writer.end("a")
    with open_trace(path) as trace:
        assert [t.index for t in trace.turns("a")] == [0, 1]


def test_live_refuses_a_damaged_file_and_compression(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type":"trace","version":1,"fidelity":"messages"}\n{"type":"ses')
    with pytest.raises(InputError, match=r":2: the last line is cut off.*record into another file"):
        TraceWriter(path, HEADER, live=True).__enter__()
    with pytest.raises(InputError, match="not compressed"):
        TraceWriter(tmp_path / "t.jsonl.zst", HEADER, live=True)


def test_blobs_are_stored_once_and_files_stay_inside(tmp_path: Path) -> None:
    text = tmp_path / "in" / "c.txt"
    text.parent.mkdir()
    text.write_text("x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, HEADER) as writer:
        assert writer.json_blob([1]) == writer.json_blob([1])
        assert writer.file_blob(text, digest) == f"sha256:{digest}"
        with pytest.raises(InputError, match="lies outside"):
            writer.file_blob("/etc/hostname", digest)
    with open_trace(path) as trace:
        assert len(trace.blob_refs()) == 2
        assert trace.blob_path(f"sha256:{digest}").read_text() == "x"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="cannot be written"),
        TraceWriter(tmp_path / "file" / "t.jsonl", HEADER),
    ):
        pass
