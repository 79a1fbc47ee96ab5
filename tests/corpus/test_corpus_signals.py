"""However a build is ended, it leaves neither folders nor processes; what kill -9 leaves, the next one removes."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from loadgen import signals
from loadgen.cli import main
from loadgen.corpus import cache
from loadgen.corpus.staging import building, leftovers, staged, sweep

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM", signal.SIGHUP: "ended by SIGHUP"}


def begin(tmp_path, *words):
    """A build of minutes in a session of its own, once it has a folder."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "loadgen", "corpus", "build", "stdlib", "--layout", "rotated"),
            *("-n", "400", "--tokens", "140000", *words),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not half_built(tmp_path):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    return process


def half_built(tmp_path):
    return [path for path in tmp_path.rglob(".*") if path.suffix != ".lock"]


def left(tmp_path):
    return [path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith(".")]


def end(process, everyone):
    out, err = process.communicate(timeout=60)
    still = psutil.wait_procs(everyone, timeout=0)[1]
    for one in still:
        one.kill()
    assert not still
    return process.returncode, out, err


def everyone_of(process):
    mine = psutil.Process(process.pid)
    return [mine, *mine.children(recursive=True)]


@pytest.mark.parametrize("where", ["folder", "cache"])
@pytest.mark.parametrize("to_group", [False, True], ids=["parent", "group"])
@pytest.mark.parametrize("number", CODES)
def test_a_signal_unwinds(tmp_path, number, to_group, where):
    words = ("-o", str(tmp_path / "out"), "--no-cache") if where == "folder" else ()
    process = begin(tmp_path, "--processes", "2", *words)
    while not list(tmp_path.rglob("context-*.txt")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    everyone = everyone_of(process)
    (os.killpg if to_group else os.kill)(process.pid, number)
    assert end(process, everyone) == (CODES[number], "", f"loadgen: {WORDS[number]}\n")
    assert left(tmp_path) == []


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.nightly), "3"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment_s", [0.0, 0.05, 0.2, 0.6])
def test_bursts_change_nothing(tmp_path, number, processes, moment_s):
    for gap_s in (0.0, 0.002, 0.01):
        process = begin(tmp_path, "--processes", processes, "-o", str(tmp_path / "out"), "--no-cache")
        time.sleep(moment_s)
        everyone = everyone_of(process)
        for _ in range(8):
            if process.poll() is None:
                os.killpg(process.pid, number)
            time.sleep(gap_s)
        assert end(process, everyone) == (CODES[number], "", f"loadgen: {WORDS[number]}\n")
        assert left(tmp_path) == []


def test_nohup_is_respected(tmp_path):
    command = [sys.executable, "-c", "import os, signal, sys; from loadgen import signals\n"]
    command[-1] += "with signals.unwinding(): os.kill(os.getpid(), signal.SIGHUP); print('on')"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert done.stdout == "on\n"


def test_handlers_are_as_before_after_a_command_that_was_not_ended(tmp_path):
    before = [signal.getsignal(number) for number in signals.ENDS]
    assert main(["corpus", "cache"]) == 0
    assert [signal.getsignal(number) for number in signals.ENDS] == before


@pytest.mark.parametrize("number", signals.ENDS)
def test_cleanup_after_an_error_is_not_interrupted(tmp_path, number):
    """The signal comes in the middle of the removal: that goes to its end, and only then the signal is acted on."""
    code = """
import os, shutil, signal, sys
from pathlib import Path
from loadgen import signals
from loadgen.corpus import staging
remove = shutil.rmtree
def interrupted(*args, **kwargs):
    for _ in range(3): os.kill(os.getpid(), int(sys.argv[2]))
    remove(*args, **kwargs)
shutil.rmtree = interrupted
try:
    with signals.unwinding(), staging.staged(Path(sys.argv[1]) / "out") as folder:
        (folder / "file").write_text("x")
        raise OSError(28, "full")
except BaseException as end:
    print(type(end).__name__, getattr(end, "code", ""))
print(os.listdir(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(int(number))], capture_output=True, text=True
    )
    assert done.stderr == ""
    name = "KeyboardInterrupt " if number == signal.SIGINT else f"Ended {CODES[number]}"
    assert done.stdout == f"{name}\n[]\n"


def test_a_signal_waits_for_the_end_of_what_is_not_to_be_disturbed():
    code = """
import os, signal
from loadgen import signals
told = []
try:
    with signals.unwinding():
        with signals.undisturbed() as disturbed:
            os.kill(os.getpid(), signal.SIGTERM)
            told.append("held")
            with disturbed():
                told.append("never")
            told.append("never")
except signals.Ended as end:
    told.append(end.code)
os.kill(os.getpid(), signal.SIGINT)
print(told)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['held', 143]\n", "")


def killed_build(tmp_path):
    process = begin(tmp_path, "--processes", "2")
    everyone = everyone_of(process)
    process.kill()
    process.communicate(timeout=60)
    psutil.wait_procs(everyone, timeout=60)
    assert half_built(tmp_path)


def test_what_a_killed_builder_left_is_listed_and_cleared(tmp_path, capsys):
    killed_build(tmp_path)
    assert main(["corpus", "cache"]) == 0
    assert "left by a build that was killed" in capsys.readouterr().out
    assert main(["corpus", "cache", "--clear", "--kind", "contexts"]) == 0
    assert left(tmp_path) == []


def test_what_a_killed_builder_left_is_removed_by_the_next_build(tmp_path, repository):
    killed_build(tmp_path)
    assert main(["corpus", "build", str(repository), "-n", "1", "--tokens", "500"]) == 0
    assert not list((tmp_path / "cache" / "contexts").glob(".building-*"))


def test_a_builder_at_work_is_left_alone(tmp_path):
    root = tmp_path / "cache" / "contexts"
    root.mkdir(parents=True)
    with building(root) as mine, building(root) as other:
        (mine / "file").write_text("x")
        sweep(root)
        cache.clear()
        assert (mine / "file").read_text() == "x"
        assert other.is_dir()
        assert leftovers(root) == []
        assert cache.entries() == []
    assert list(root.iterdir()) == []


def test_a_folder_of_an_earlier_version_without_a_lock_is_removed(tmp_path):
    (tmp_path / ".building-abc" / "contexts").mkdir(parents=True)
    assert leftovers(tmp_path) == [tmp_path / ".building-abc"]
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_builders_and_sweeps_at_once(tmp_path):
    code = """
import sys
from pathlib import Path
from loadgen.corpus.staging import building, sweep
root = Path(sys.argv[1])
for n in range(300):
    with building(root) as folder:
        (folder / "file").write_text(str(n))
        sweep(root)
        assert (folder / "file").read_text() == str(n)
"""
    crowd = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [one.wait(timeout=120) for one in crowd] == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_staged_replaces_what_was_there(tmp_path):
    for text in ("one", "two"):
        with staged(tmp_path / "out") as folder:
            (folder / "file").write_text(text)
    assert (tmp_path / "out" / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("number", CODES)
def test_a_clone_under_way_ends_too(tmp_path, number):
    """git waits for an ssh that never answers and, as the real one, ends when nobody is at the other end."""
    ssh = tmp_path / "ssh.sh"
    ssh.write_text(f"#!/bin/sh\ntouch {tmp_path}/connected\ncat > /dev/null\n")
    ssh.chmod(0o755)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "loadgen", "corpus", "build", "ssh://git@example.invalid/x.git"),
            *("-n", "1", "--tokens", "1000", "-o", str(tmp_path / "out")),
        ],
        env=os.environ | {"GIT_SSH_COMMAND": str(ssh), "GIT_SSH_VARIANT": "ssh"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "connected").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    while len(everyone := everyone_of(process)) < 3:  # git, and its ssh
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", f"loadgen: {WORDS[number]}\n")
    assert process.returncode == CODES[number]
    still = psutil.wait_procs(everyone, timeout=30)[1]
    for one in still:
        one.kill()
    assert still == []
