"""What a user may name for output, of every command that writes a file: whole or not at all, and over nothing else."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.errors import InputError
from loadgen.outfile import destination, refuse_input, replacing, write_file


@pytest.fixture
def special(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Things that are no regular file, by kind."""
    fifo, bound = tmp_path / "fifo", tmp_path / "socket"
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as listener:
        # an address holds about a hundred bytes, fewer than a test's folder may have
        before = Path.cwd()
        os.chdir(tmp_path)
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        yield {"a pipe": fifo, "a socket": bound, "a character device": Path("/dev/zero")}


def test_a_file_appears_whole_with_the_mode_of_any_new_one(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with replacing(out) as part:
        part.write_text("new")
        assert not out.exists()
    assert out.read_text() == "new"
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "plain"]


def test_a_file_that_is_replaced_keeps_its_mode_and_survives_a_failure(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("old")
    out.chmod(0o640)

    def half() -> None:
        with replacing(out) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert out.read_text() == "old"
    write_file(out, "né")
    assert out.read_bytes() == "né".encode()
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing yet"])
def test_links_are_followed_and_stay(tmp_path: Path, there: bool) -> None:
    (tmp_path / "in").mkdir()
    target, link, second = tmp_path / "in" / "target", tmp_path / "link", tmp_path / "second"
    if there:
        target.write_text("old")
    link.symlink_to(Path("in", "target"))
    second.symlink_to(link)
    write_file(second, "new")
    assert link.is_symlink()
    assert second.is_symlink()
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_other_things_are_refused_and_stay(tmp_path: Path, special: dict[str, Path]) -> None:
    for kind, path in special.items():
        link = tmp_path / f"to {path.name}"
        link.symlink_to(path)
        for name in (path, link):
            before = name.lstat()
            with pytest.raises(InputError, match=f"cannot be written: it is {kind}; name a file"):
                write_file(name, "x")
            assert os.path.samestat(before, name.lstat())


def test_an_open_pipe_of_ours_is_refused(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(InputError, match="it is a pipe"):
            write_file(Path(f"/dev/fd/{writing}"), "x")
    finally:
        os.close(reading)
        os.close(writing)


def test_where_the_command_prints_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kept = os.dup(1)
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            for name in (log, Path("/dev/stdout"), Path("/dev/fd/1")):
                with pytest.raises(InputError, match="it is where this command prints"):
                    write_file(name, "x")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert log.read_text() == ""


def test_the_null_device_is_taken_and_stays(tmp_path: Path) -> None:
    before = os.lstat(os.devnull)
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    for name in (Path(os.devnull), link):
        assert destination(name) is None
        write_file(name, "x")
    assert os.path.samestat(before, os.lstat(os.devnull))
    assert stat.S_ISCHR(before.st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_folders_are_refused_and_none_is_made(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "file").write_text("")
    for name, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none" / "out", "none is no folder"),
        (tmp_path / "file" / "out", "file is no folder|Not a directory"),
        (loop, "symbolic links"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(InputError, match=f"cannot be written: .*({why})"):
            write_file(name, "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_output_is_no_input_under_any_name(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("x")
    (tmp_path / "soft").symlink_to(source)
    os.link(source, tmp_path / "hard")
    for name in (source, tmp_path / "soft", tmp_path / "hard", tmp_path / "." / "a"):
        with pytest.raises(InputError, match="is both read and written; choose another --html"):
            refuse_input(name, [tmp_path / "missing", source], "--html")
    refuse_input(tmp_path / "b", [source, tmp_path / "missing"])
