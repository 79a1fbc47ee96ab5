"""Files as they come: cut at any byte, in several frames, behind a byte order mark."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from loadgen.cli import main
from loadgen.errors import InputError
from loadgen.trace.formats.base import Report
from loadgen.trace.formats.rows import csv_rows, json_document, json_rows
from loadgen.trace.importing import import_trace
from loadgen.trace.lines import open_unpacked
from loadgen.trace.model import Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter
from tests.trace import fixtures
from tests.trace.conftest import user

TEXT = b"".join(
    b'{"line": %d, "text": "%d"}\n' % (i, i * i * 7919) for i in range(40_000)
)  # of several blocks
SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"12345"


def frame(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=3, **options).compress(data)


def streamed(data: bytes) -> bytes:
    """As a writer makes it that does not know the length beforehand."""
    maker = zstandard.ZstdCompressor(level=3).compressobj()
    return maker.compress(data) + maker.flush()


FRAMES: dict[str, bytes] = {
    "one": frame(TEXT),
    "without a length": streamed(TEXT),
    "with a checksum": frame(TEXT, write_checksum=True),
    "equal bytes": frame(b"\n" * 1_000_000),
    "two": frame(TEXT[:500_000]) + streamed(TEXT[500_000:]),
    "skippable ones": SKIPPABLE.join((frame(b"a\n"), frame(b"b\n"))) + SKIPPABLE,
    "of nothing": frame(b""),
}


def unpacked(path: Path) -> bytes:
    file, _ = open_unpacked(path)
    with file:
        return file.read()


@pytest.mark.parametrize("name", FRAMES)
def test_whole_frames_are_read_and_cut_ones_are_called_so(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / "t.zst", FRAMES[name]
    path.write_bytes(content)
    whole = unpacked(path)
    if name in ("one", "without a length", "with a checksum", "two"):
        assert whole == TEXT
    ends = {"two": len(frame(TEXT[:500_000])), "skippable ones": len(frame(b"a\n"))}
    step = max(1, len(content) // 50)
    for cut in sorted(
        {*range(1, 24), *range(24, len(content), step), *range(len(content) - 24, len(content))}
    ):
        if not 0 < cut < len(content):
            continue
        path.write_bytes(content[:cut])
        if name == "skippable ones" and cut in (
            ends[name],
            ends[name] + len(SKIPPABLE),
            len(content) - len(SKIPPABLE),
        ):
            assert unpacked(path) in (b"a\n", b"a\nb\n")  # between two frames nothing is cut
            continue
        with pytest.raises(InputError, match=r"t\.zst is (damaged or )?cut off"):
            open_unpacked(path)


def test_what_follows_a_frame_and_is_none_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.zst"
    path.write_bytes(frame(TEXT) + b"something else")
    with pytest.raises(InputError, match="damaged"):
        unpacked(path)


@pytest.mark.parametrize("pack", [frame, gzip.compress], ids=["zst", "gz"])
def test_a_cut_trace_is_not_called_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="messages")) as writer:
        writer.session(Session(id="a"))
        writer.end("a")
    packed = pack(path.read_bytes())
    path = tmp_path / "packed"
    for cut in range(1, len(packed)):
        path.write_bytes(packed[:cut])
        assert main(["trace", "validate", str(path)]) == 2
        error = capsys.readouterr().err
        assert "cut off" in error
        assert error.count("\n") == 1
    path.write_bytes(b"")
    assert main(["trace", "validate", str(path)]) == 2
    assert "the file is empty" in capsys.readouterr().err


@pytest.mark.parametrize("pack", [bytes, gzip.compress, frame], ids=["plain", "gz", "zst"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "rows"

    def marked(data: bytes) -> Path:
        path.write_bytes(pack(codecs.BOM_UTF8 + data))
        return path

    report = Report()
    assert list(json_rows(marked(b'{"a":1}\n{"a":2}\n'), report)) == [(1, {"a": 1}), (2, {"a": 2})]
    assert json_document(marked(b'{"a":1}'), report) == {"a": 1}
    assert list(csv_rows(marked(b"a,b\n1,2\n"), report)) == [(2, {"a": "1", "b": "2"})]
    assert unpacked(marked(b"")) == b""
    assert not report.skipped
    # one mark alone, and none within
    assert unpacked(marked(codecs.BOM_UTF8 + b"x")) == codecs.BOM_UTF8 + b"x"


@pytest.mark.parametrize("name", ["mooncake", "claude-code", "codex", "weka", "cline"])
def test_importers_lose_nothing_to_a_mark(tmp_path: Path, name: str) -> None:
    folder = fixtures.write(tmp_path / "in", name)
    plain = import_trace([folder], tmp_path / "plain.jsonl")
    for path in [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]:
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    marked = import_trace([folder], tmp_path / "marked.jsonl")
    assert marked.counts == plain.counts
    assert marked.report.skipped == plain.report.skipped
    assert (tmp_path / "marked.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


def test_a_trace_behind_a_mark_keeps_its_turns(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="messages")) as writer:
        ref = writer.json_blob("system")
        writer.session(Session(id="a", system=ref))
        for index in range(3):
            writer.turn(Turn(session="a", index=index, append=[user(str(index))]))
        writer.end("a")
    with open_trace(path) as trace:
        turns = trace.turns("a")
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    with open_trace(path) as trace:
        assert trace.turns("a") == turns
        assert trace.blob(ref).json == "system"
