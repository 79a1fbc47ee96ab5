from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.errors import InputError
from loadgen.measure.journal import JournalError, SampleWriter, read_samples
from loadgen.measure.sample import Sample, TurnClass


def sample(turn: int = 0, **fields: object) -> Sample:
    values: dict[str, object] = {
        "run": "r", "arm": "off", "rep": 0, "session": "s", "turn": turn, "klass": TurnClass.FIRST, "worker": "w",
        "endpoint": "e", "request_id": "q", "intended_ns": 1, "send_ns": 2, "end_ns": 3, "clock": "kernel",
    }  # fmt: skip
    return Sample(**(values | fields))  # type: ignore[arg-type]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = [sample(turn, cached_tokens=None if turn else 0, message="línea\n<b>") for turn in range(3)]
    with SampleWriter(tmp_path / "samples-a.jsonl") as writer:
        for one in written:
            writer.write(one)
    reader = read_samples(tmp_path)
    assert list(reader) == written
    assert list(reader) == written  # it can be read again
    assert reader.truncated == 0


def test_all_workers_are_read(tmp_path: Path) -> None:
    for worker in ("b", "a"):
        with SampleWriter(tmp_path / f"samples-{worker}.jsonl") as writer:
            writer.write(sample(worker=worker))
    assert [one.worker for one in read_samples(tmp_path)] == ["a", "b"]


def test_half_a_last_line_is_counted_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "samples-a.jsonl"
    with SampleWriter(path) as writer:
        writer.write(sample(0))
        writer.write(sample(1))
    path.write_bytes(path.read_bytes()[:-20])
    reader = read_samples(tmp_path)
    assert [one.turn for one in reader] == [0]
    assert reader.truncated == 1


def test_a_damaged_line_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "samples-a.jsonl"
    with SampleWriter(path) as writer:
        writer.write(sample(0))
    path.write_bytes(path.read_bytes() + b'{"v":1}\n' + path.read_bytes())
    with pytest.raises(InputError, match=r"samples-a\.jsonl, line 2"):
        list(read_samples(tmp_path))


def test_a_folder_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no samples"):
        read_samples(tmp_path)


def test_a_writer_that_comes_after_a_killed_one_starts_on_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "samples-a.jsonl"
    with SampleWriter(path) as writer:
        writer.write(sample(0))
        writer.write(sample(1))
    path.write_bytes(path.read_bytes()[:-5])
    with SampleWriter(path) as writer:
        writer.write(sample(2))
    assert [one.turn for one in read_samples(tmp_path)] == [0, 2]


def test_a_killed_process_keeps_what_it_measured(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from loadgen.measure.journal import SampleWriter\n"
        "from loadgen.measure.sample import Sample, TurnClass\n"
        f"w = SampleWriter(Path({str(tmp_path / 'samples-a.jsonl')!r}))\n"
        "for turn in range(20):\n"
        "    w.write(Sample(run='r', arm='a', rep=0, session='s', turn=turn, klass=TurnClass.FIRST, worker='w',\n"
        "        endpoint='e', request_id='q', intended_ns=1, send_ns=2, end_ns=3, clock='loop'))\n"
        "print('written', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [one.turn for one in read_samples(tmp_path)] == list(range(20))


def test_a_full_disk_is_said_once_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "samples-a.jsonl"
    writer = SampleWriter(path)
    writer.write(sample(0))
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:  # a file-size limit refuses a write in the middle of a line, as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, old[1]))
        with pytest.raises(JournalError, match=r"samples-a\.jsonl.*free space"):
            writer.write(sample(1))
        writer.write(sample(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    writer.close()
    assert (writer.written, writer.lost) == (1, 2)
    reader = read_samples(tmp_path)
    assert [one.turn for one in reader] == [0]
    assert reader.truncated == 1


def test_a_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        SampleWriter(tmp_path / "none" / "samples-a.jsonl")
