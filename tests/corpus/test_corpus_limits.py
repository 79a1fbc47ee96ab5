"""What ran out is named: files, processes and memory are not the disk."""

import errno
import os
import subprocess
import sys

import pytest

from loadgen.cli import main
from loadgen.corpus.writer import ContextWriter

BUILD = ["corpus", "build", "stdlib", "--layout", "rotated", "-n", "8", "--tokens", "60000"]


def limited(limit, *words):
    command = ["/bin/sh", "-c", f'{limit}; exec "$@"', "sh", sys.executable, "-m", "loadgen", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def left(tmp_path):
    return [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("files", [12, 16, 24])
def test_too_few_files(tmp_path, files):
    done = limited(f"ulimit -n {files}", *BUILD, "--processes", "7", "-o", str(tmp_path / "out"))
    assert done.returncode == 2, done.stderr
    assert f"its limit is {files}" in done.stderr
    assert "`ulimit -n`" in done.stderr
    assert "--processes" in done.stderr
    assert "written" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 70, "memory ran out"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 2, "memory ran out"),
        (OSError(errno.EMFILE, "Too many open files"), 2, "raise `ulimit -n`"),
        (OSError(errno.ENFILE, "Too many open files in system"), 2, "this machine may open no more files"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), 2, "no more processes may be started"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "cannot be written to"),
    ],
    ids=lambda value: str(value),
)
def test_each_has_its_sentence(tmp_path, repository, monkeypatch, capsys, error, code, words):
    def fail(*_):
        raise error

    monkeypatch.setattr(ContextWriter, "write", fail)
    out = tmp_path / "out"
    assert main(["corpus", "build", str(repository), "-n", "1", "--tokens", "500", "-o", str(out)]) == code
    err = capsys.readouterr().err
    assert words in err
    assert "internal error" not in err
    assert err.count("\n") == 1
    assert left(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces it")
def test_memory_that_runs_out_is_no_internal_error(tmp_path):
    code = "import sys; from loadgen.cli import COMMANDS, main; COMMANDS['path'] = ('hungry', 'eat'); sys.exit(main(['path']))"
    (tmp_path / "hungry.py").write_text(
        "def add_arguments(_): pass\ndef run(_): return len(bytearray(1 << 40))\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -v 2000000; exec "$@"', "sh", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == 70
    assert done.stderr.startswith("loadgen: memory ran out")


CLOSED = ["2>&-", ">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(
    "words",
    [
        ("corpus", "build", "stdlib", "-n", "2", "--tokens", "1000", "-o", "OUT"),
        ("corpus", "build", "stdlib", "--layout", "rotated", "-n", "6", "--tokens", "60000", "--processes", "2", "-o", "OUT"),
        ("corpus", "cache"),
        ("trace", "synth", "--help"),
        ("explain",),
        ("size", "no-such-model"),
    ],
    ids=["build", "forked", "cache", "help", "table", "error"],
)  # fmt: skip
def test_closed_streams_are_no_terminals(tmp_path, closed, words):
    words = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    command = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "loadgen", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == (2 if "size" in words else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    if str(tmp_path / "out") in words:
        assert (tmp_path / "out" / "manifest.json").is_file()
