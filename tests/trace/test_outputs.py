"""What `-o` and `--html` of `loadgen trace …` may name: nothing that is read, nothing but files, no folder that is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.trace.model import Blocks, Gap, Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.synthesis.parametric import synthesize
from loadgen.trace.synthesis.profile import load_profile
from loadgen.trace.synthesis.resample import resample
from loadgen.trace.writer import TraceWriter

Command = Callable[[Path, Path], list[str]]

COMMANDS: dict[str, Command] = {
    "fit": lambda a, out: ["fit", str(a), "-o", str(out), "--sessions", "20"],
    "resample": lambda a, out: ["synth", "--resample", str(a), "--sessions", "2", "-o", str(out)],
    "anonymize": lambda a, out: ["anonymize", str(a), "-o", str(out)],
    "redact": lambda a, out: ["redact", str(a), "-o", str(out)],
    "fill": lambda a, out: ["fill", str(a), "--corpus", "python-stdlib", "-o", str(out)],
    "show": lambda a, out: ["show", str(a), "--html", str(out)],
    "export": lambda a, out: ["export", str(a), "--to", "mooncake", "-o", str(out)],
    "import": lambda a, out: ["import", str(a), "--format", "mooncake", "-o", str(out)],
    "profile": lambda a, out: ["synth", "--profile", str(a), "--sessions", "2", "-o", str(out)],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of blocks that is large enough to be fitted."""
    path = tmp_path_factory.mktemp("source") / "a.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=64)) as writer:
        for number in range(12):
            name = f"s{number}"
            writer.session(Session(id=name))
            for index in range(12):
                held = 10 + 2 * index
                writer.turn(
                    Turn(
                        session=name,
                        index=index,
                        blocks=Blocks(
                            from_=None, reuse=held if index else 0, new=2 if index else 12, tail_tokens=0
                        ),
                        gap=Gap("tool", 1.0) if index else None,
                        output_tokens=20,
                    )
                )
            writer.end(name)
    return path


@pytest.mark.parametrize("kind", ["itself", "link", "hard link"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_source_is_never_the_output(
    tmp_path: Path, source: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read = tmp_path / "a"
    before = source.read_bytes()
    read.write_bytes(before)
    out = tmp_path / "b"
    if kind == "itself":
        out = read
    elif kind == "link":
        out.symlink_to(read)
    else:
        os.link(read, out)
    assert main(["trace", *COMMANDS[name](read, out)]) == 2
    flag = "--html" if name == "show" else "-o"
    assert f"{out} is both read and written; choose another {flag}" in capsys.readouterr().err
    assert read.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a", out.name}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("redact", "fill", "import")])
def test_no_device_pipe_or_missing_folder(
    tmp_path: Path, source: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read = Path("heavy") if name == "profile" else source
    os.mkfifo(tmp_path / "fifo")
    for out, why in (
        (tmp_path / "fifo", "it is a pipe"),
        (Path("/dev/zero"), "it is a character device"),
        (tmp_path / "none" / "x", "none is no folder"),
        (tmp_path, "Is a directory"),
    ):
        before = out.lstat() if out.exists() else None
        assert main(["trace", *COMMANDS[name](read, out)]) == 2
        text = capsys.readouterr().err
        assert why in text
        assert "Traceback" not in text
        assert before is None or os.path.samestat(before, out.lstat())
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]
    null = os.lstat(os.devnull)
    assert main(["trace", *COMMANDS[name](read, Path(os.devnull))]) == 0
    assert os.path.samestat(null, os.lstat(os.devnull))


def test_a_trace_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest.jsonl.gz"
    link.symlink_to(Path("real", "one.jsonl.gz"))
    for sessions in (1, 2):
        synthesize(load_profile("benchmark"), link, sessions=sessions)
        assert link.is_symlink()
        with open_trace(tmp_path / "real" / "one.jsonl.gz") as trace:
            assert sum(s.parent is None for s in trace.sessions) == sessions
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["one.jsonl.gz"]


def test_texts_that_a_trace_keeps_beside_it_are_read_too(tmp_path: Path) -> None:
    text = tmp_path / "c.txt"
    text.write_text("x")
    path = tmp_path / "t.jsonl"
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    with TraceWriter(path, Header(version=1, fidelity="messages")) as writer:
        content = {"blob": writer.file_blob(text, digest)}
        writer.session(Session(id="a"))
        writer.turn(Turn(session="a", index=0, append=[{"role": "user", "content": content}]))
        writer.end("a")
    with open_trace(path) as trace:
        assert trace.files() == [path, text]
    for command in ("anonymize", "redact"):
        assert main(["trace", command, str(path), "-o", str(text)]) == 2
    with open_trace(path) as trace, pytest.raises(Exception, match="both read and written"):
        resample(trace, text, sessions=1)
    assert text.read_text() == "x"
