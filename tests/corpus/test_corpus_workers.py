"""Who builds contexts. Processes are forked in fresh interpreters: the one that runs the tests has other threads, or gevent."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loadgen import tokens
from loadgen.corpus import build as building
from loadgen.corpus import cores
from loadgen.corpus.workers import InTurn, Threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

# A crew of three over a state that counts what was learnt; `work` and what follows come from the test.
CREW = """
import os, signal, sys, time, psutil
from loadgen.corpus.forked import Forked, may_fork
from loadgen.errors import InputError, LoadgenError

class State:
    def __init__(self): self.fresh, self.learnt = [], []
    def release(self): pass
    def news(self): self.fresh, found = [], self.fresh; return found
    def add(self, news): self.learnt += news

state = State()
parent = os.getpid()
crew = Forked(3, state)

def rest():
    return len(psutil.Process().children(recursive=True))
"""

# Builds with as many processes as it is told, whatever the size, and says who worked.
BUILD = """
import sys
from pathlib import Path
from loadgen import tokens
from loadgen.corpus import build, forked
from loadgen.corpus.recipe import resolve

build._WORTH_A_FORK = 0
out = Path(sys.argv[2])
for form in ("document", "messages"):
    for layout in ("distinct", "rotated", "shared-prefix"):
        for count in (1, 2, 3):
            recipe = resolve(sys.argv[1])
            recipe.prompt.form, recipe.prompt.layout, recipe.prompt.shared_tokens = form, layout, 2500
            build.build(recipe, n=5, tokens=4000, out=out / f"{form}-{layout}" / str(count), tokenizer=tokens.get("tekken"), processes=count)
who = build._workers(2, 1, None, local=True)
print(type(who).__name__)
"""


def python(code, *arguments, **options):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def crew(code):
    done = python(CREW + code)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("who", [InTurn(), Threads(3)], ids=["in turn", "threads"])
def test_each_piece_of_work_is_done_once(who):
    found = {}
    who.map(lambda index: index * index, 20, found.__setitem__)
    assert found == {index: index * index for index in range(20)}


def test_an_error_ends_the_threads():
    begun = []

    def work(index):
        begun.append(index)
        if index:
            time.sleep(0.001)
        raise ValueError(index)

    with pytest.raises(ValueError, match="0"):
        Threads(2).map(work, 1000, lambda *_: None)
    assert len(begun) < 1000


def test_processes_share_the_work_and_tell_what_they_learnt():
    code = """
def work(index):
    if os.getpid() != parent: state.fresh.append(index)
    time.sleep(0.05 if os.getpid() == parent else 0.005)
    return os.getpid(), bytes(200_000)
found = {}
assert may_fork()
crew.map(work, 60, lambda index, result: found.__setitem__(index, result[0]))
assert sorted(found) == list(range(60))
assert set(state.learnt) == {index for index, who in found.items() if who != parent}
assert len(set(found.values())) == 3, found
crew.map(work, 1, lambda index, result: found.__setitem__(index, result[0]))
assert found[0] == parent, "one piece of work needs no other process"
print(rest())
"""
    assert crew(code) == "0\n"


@pytest.mark.parametrize(
    ("fails", "raised"),
    [
        ("raise InputError('no text of exactly 7 tokens')", "InputError no text of exactly 7 tokens"),
        ("raise OSError(28, 'No space left on device')", "OSError [Errno 28] No space left on device"),
        ("1 / 0", "ZeroDivisionError division by zero in a worker process: ZeroDivisionError"),
        ("class Odd(Exception): pass\n    raise Odd('strange')", "RuntimeError Odd: strange"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "LoadgenError a process that builds contexts was killed by SIGKILL",
        ),
        ("os._exit(3)", "LoadgenError a process that builds contexts ended with exit code 3"),
    ],
    ids=["input", "system", "bug", "cannot be sent", "killed", "gone"],
)
def test_what_ends_one_process_ends_all(fails, raised):
    code = f"""
def work(index):
    if os.getpid() == parent:
        time.sleep(0.02)
        return
    {fails}
try:
    crew.map(work, 1000, lambda *_: None)
except Exception as error:
    notes = "".join(getattr(error, "__notes__", []))
    said = f"{{type(error).__name__}} {{error}}"
    print(said + (" in a worker process: ZeroDivisionError" if "ZeroDivisionError" in notes else ""))
print(rest())
"""
    said, left = crew(code).splitlines()
    assert said.startswith(raised)
    assert left == "0"


def test_no_piece_of_work_is_done_twice():
    code = """
times = [0] * 50_000
def done(index, result): times[index] += 1
Forked(6, state).map(lambda index: None, len(times), done)
print(set(times), rest())
"""
    assert crew(code) == "{1} 0\n"


def test_an_error_or_an_interruption_here_ends_the_others():
    code = """
def done(index, result):
    if os.getpid() == parent: raise KeyboardInterrupt
try:
    crew.map(lambda index: time.sleep(0.01 if os.getpid() == parent else 60), 9, done)
except KeyboardInterrupt:
    print("interrupted")
print(rest())
"""
    assert crew(code) == "interrupted\n0\n"


def test_same_bytes_from_one_two_and_three_processes(tmp_path, repository, folder):
    for number, source in enumerate((repository, folder)):
        done = python(BUILD, source, tmp_path / str(number))
        assert done.returncode == 0, done.stderr
        assert done.stdout == "Forked\n"
        for kind in (tmp_path / str(number)).iterdir():
            assert digests(kind / "1") == digests(kind / "2") == digests(kind / "3"), kind


def test_a_process_that_dies_leaves_no_folder(tmp_path, repository):
    code = """
import os, signal, sys
from loadgen.cli import main
from loadgen.corpus import build
from loadgen.corpus.writer import ContextWriter
build._WORTH_A_FORK = 0
parent, write = os.getpid(), ContextWriter.write
def die(self, index, *rest):
    if os.getpid() != parent: os.kill(os.getpid(), signal.SIGKILL)
    import time; time.sleep(0.05)
    return write(self, index, *rest)
ContextWriter.write = die
sys.exit(main(["corpus", "build", sys.argv[1], "-n", "6", "--tokens", "3000", "-o", sys.argv[2], "--processes", "3"]))
"""
    before = os.environ | {"LOADGEN_CACHE": str(tmp_path / "cache")}
    done = python(code, repository, tmp_path / "out" / "contexts", env=before)
    assert done.returncode == 70
    assert done.stdout == ""
    assert done.stderr.startswith("loadgen: a process that builds contexts was killed by SIGKILL")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out" / "contexts").exists()
    assert left_in(tmp_path / "cache") == []


def left_in(cache):
    return [path for path in cache.rglob("*") if path.is_file() or path.name.startswith(".")]


@pytest.fixture
def large_build(tmp_path):
    """A build in a process group of its own that two processes are at, and all its processes."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "loadgen", "corpus", "build", "stdlib", "--layout", "rotated"),
            *("-n", "400", "--tokens", "140000", "--processes", "2", "-o", str(tmp_path / "out")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    mine = psutil.Process(process.pid)
    while not any(child.name().startswith("python") for child in mine.children()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    everyone = [mine, *mine.children(recursive=True)]
    while not list(tmp_path.rglob("context-*.txt")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    yield process, everyone
    for each in everyone:
        if each.is_running():
            each.kill()
    process.communicate()


def test_ctrl_c_leaves_nothing(tmp_path, large_build):
    process, everyone = large_build
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "loadgen: interrupted\n")
    assert psutil.wait_procs(everyone, timeout=0)[1] == []
    assert not (tmp_path / "out").exists()
    assert left_in(tmp_path / "cache") == []


def test_ctrl_c_for_the_parent_alone_leaves_nothing(tmp_path, large_build):
    process, everyone = large_build
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "loadgen: interrupted\n")
    assert process.returncode == 130
    assert psutil.wait_procs(everyone, timeout=0)[1] == []
    assert left_in(tmp_path / "cache") == []


def test_processes_end_when_their_parent_is_killed(large_build):
    process, everyone = large_build
    process.kill()
    _, err = process.communicate(timeout=60)  # returns when no one holds the other end any more
    assert err == ""
    assert psutil.wait_procs(everyone, timeout=60)[1] == []


def test_two_builders_at_once_take_the_same(tmp_path, repository):
    code = (
        "import sys; from loadgen.corpus import build; build._WORTH_A_FORK = 0; from loadgen.cli import main; "
        "sys.exit(main(['corpus', 'build', sys.argv[1], '-n', '6', '--tokens', '3000', '--processes', '2']))"
    )
    environment = os.environ | {"LOADGEN_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(repository)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert not list((tmp_path / "cache" / "contexts").glob(".building-*"))


@pytest.mark.parametrize(
    "state",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import sys; sys.modules['gevent'] = sys",
        "import sys; sys.platform = 'darwin'",
        "import multiprocessing; multiprocessing.current_process()._config['daemon'] = True",
    ],
    ids=["a thread", "gevent", "macOS", "a child that may have none"],
)
def test_threads_where_a_fork_may_do_harm(state):
    code = f"""
from loadgen.corpus import build
print(type(build._workers(2, 10**9, None, local=True)).__name__)
{state}
print(type(build._workers(2, 10**9, None, local=True)).__name__)
"""
    assert python(code).stdout == "Forked\nThreads\n"


def test_who_builds(monkeypatch):
    monkeypatch.setattr("loadgen.corpus.forked.may_fork", lambda: True)

    def who(*arguments, local=True):
        return type(building._workers(*arguments, None, local=local)).__name__

    assert who(1, 10**9) == "InTurn"
    assert who(2, 10**9) == "Forked"
    assert who(2, 1000) == "Threads"  # too little to be worth it
    assert who(2, 10**9, local=False) == "Threads"  # connections cannot be shared


def test_only_tokenizers_without_a_connection_are_local():
    tekken = tokens.get("tekken")
    assert tokens.is_local(tekken)
    assert not tokens.is_local(type(tekken)(tekken.name, tekken.fingerprint, tekken._encoding, ()))


def test_no_more_cores_than_this_process_may_use(monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert cores.available() == 1


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 2),
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", 3),
        ({"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "400000 100000\n"}, "0::/a/b\n", 1),
        ({"cpu.max": "50000 100000\n"}, "0::/docker/of/the/machine\n", 1),
        (
            {"cpu/x/cpu.cfs_quota_us": "250000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            "4:memory:/\n3:cpu,cpuacct:/x\n",
            3,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "3:cpu:/\n", None),
        ({"cpu.max": "nonsense"}, "0::/\n", None),
        ({}, None, None),
    ],
)
def test_no_more_cores_than_the_control_group_pays_for(tmp_path, files, own, expected):
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    mine = tmp_path / "own"
    if own is not None:
        mine.write_text(own)
    found = cores._quota(Path(tmp_path / "groups"), mine)
    assert found == expected if expected else found > 10**6
