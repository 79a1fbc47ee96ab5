"""The sampler's parsers on texts in the kernel's own format, and the sampler itself as a lone file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadgen.measure.probes import host_sampler as sampler

MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device 10.0.0.1:/kv mounted on /mnt/kv\\040store with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,rsize=1048576,wsize=1048576,proto=rdma,nconnect=2,remoteports=10.0.0.1-10.0.0.8
\tage:\t120
\tbytes:\t100 200 300 400 500 600 7 8
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\trdma 0 0 2 0 3 50 49 1 5 10 11 12 13 14 15 16 17 18 19
\txprt:\trdma 0 0 1 0 3 30 30 0 7 10 11 12 13 14 15 16 17 18 19
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 10 12 1 1400 10487160 5 80 90 2
\t       WRITE: 0 0 0 0 0 0 0 0 0
device 10.0.0.2:/home mounted on /home with fstype nfs statvers=1.1
\topts:\trw,vers=3,proto=tcp
\tbytes:\t1 2 3 4 5 6 7 8
\txprt:\ttcp 832 1 1 0 0 40 39 0 900 901 2 3 4
\tper-op statistics
\t        READ: 3 3 0 384 12288 0 1 2
"""

NVFS = """\
GDS Version: 1.7.0.149
NVFS statistics(ver: 4.0)
IO stats: Enabled, peer IO stats: Enabled
Active Process: 0
Reads				: n=5 ok=4 err=1 readMiB=40 io_state_err=0
Reads				: Bandwidth(MiB/s)=12 Avg-Latency(usec)=7
Writes				: n=9 ok=9 err=0 writeMiB=72
Ops				: Read=5 Write=9
GPU 0000:34:00.0  uuid:aa : Registered_MiB=24 Cache_MiB=0 max_pinned_MiB=26
"""


def test_transports_of_one_mount_are_added_up() -> None:
    mounts = sampler.parse_mountstats(MOUNTSTATS)
    assert sorted(mounts) == ["/home", "/mnt/kv store"]
    kv = mounts["/mnt/kv store"]
    assert kv["device"] == "10.0.0.1:/kv"
    assert "proto=rdma" in kv["opts"]
    assert kv["bytes"] == [100, 200, 300, 400, 500, 600, 7, 8]
    assert kv["ops"] == {
        "NULL": [1, 1, 0, 44, 24, 0, 0, 0, 0],
        "READ": [10, 12, 1, 1400, 10487160, 5, 80, 90, 2],
    }
    assert kv["xprt"] == {
        "lines": 2,
        "proto": "rdma",
        "connects": 3,
        "sends": 80,
        "recvs": 79,
        "bad_xids": 1,
        "backlog": 12,
    }


def test_tcp_keeps_its_backlog_elsewhere_and_old_kernels_have_no_error_column() -> None:
    home = sampler.parse_mountstats(MOUNTSTATS)["/home"]
    assert home["xprt"]["backlog"] == 901
    assert home["ops"]["READ"] == [3, 3, 0, 384, 12288, 0, 1, 2]


def test_gpudirect_statistics() -> None:
    found = sampler.parse_nvfs(NVFS)
    assert found["io_stats"] == 1
    assert (found["Reads.n"], found["Reads.readMiB"], found["Writes.writeMiB"]) == (5, 40, 72)
    assert found["Reads.Avg-Latency(usec)"] == 7
    assert found["GPU 0000:34:00.0.Registered_MiB"] == 24
    assert sampler.parse_nvfs("IO stats: Disabled\n")["io_stats"] == 0


def test_disks_in_bytes_without_loops_and_idle_ones() -> None:
    text = (
        "   7 0 loop0 5 0 10 1 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
        " 259 0 nvme0n1 10 2 80 30 4 1 16 20 3 50 60 0 0 0 0 0 0\n"
        " 259 1 nvme1n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    assert sampler.parse_diskstats(text) == {"nvme0n1": [10, 80 * 512, 30, 4, 16 * 512, 20, 3, 60]}


def test_rdma_words_become_bytes(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "hw_counters").mkdir()
    (port / "counters/port_rcv_data").write_text("25\n")
    (port / "counters/port_xmit_wait").write_text("3\n")
    (port / "hw_counters/out_of_sequence").write_text("2\n")
    assert sampler.rdma(str(tmp_path)) == {
        "mlx5_0/1": {"port_rcv_data": 100, "port_xmit_wait": 3, "out_of_sequence": 2}
    }


@pytest.mark.parametrize(
    "text", ["", "device\n", "device x mounted on /y with fstype nfs4 statvers=1.1\n\tbytes:\tx\n"]
)
def test_odd_mountstats_do_not_stop_it(text: str) -> None:
    assert all(mount["ops"] == {} for mount in sampler.parse_mountstats(text).values())


@pytest.fixture
def lone_file(tmp_path: Path) -> Path:
    """The sampler copied out of the package, as scp would."""
    return Path(shutil.copy(sampler.__file__, tmp_path / "host_sampler.py"))


def start(lone_file: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", str(lone_file), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=lone_file.parent,
        env={"PATH": os.environ["PATH"]},
    )


@pytest.mark.skipif(not Path("/proc/self/mountstats").exists(), reason="reads Linux's counters")
def test_it_runs_alone_and_ends_on_a_signal_with_whole_lines(lone_file: Path) -> None:
    out = lone_file.parent / "host.jsonl"
    process = start(lone_file, "--out", str(out), "--interval", "0.05")
    deadline = time.monotonic() + 20
    while (not out.exists() or out.read_text().count("\n") < 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines[0]["type"] == "host"
    stamps = [line["mono_ns"] for line in lines]
    assert len(stamps) >= 4
    assert stamps == sorted(stamps)
    assert all("wall_ns" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--interval", "0"], 2), (["--out", "no/such/folder/x"], 2), (["--interval", "x"], 2)],
)
def test_bad_arguments_end_it_with_one_sentence(lone_file: Path, words: list[str], code: int) -> None:
    process = start(lone_file, *words)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert errors.strip()
