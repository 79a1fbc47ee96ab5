"""Rates, windows and clocks of host samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli import main
from loadgen.errors import InputError
from loadgen.measure.probes.host import Window, clock_offset, read_host, windows, within
from loadgen.measure.probes.host_rates import (
    cache_suspicions,
    disk_rates,
    gds_bypassed,
    link_rates,
    nfs_rates,
)

MIB = 1 << 20
HEADER: dict[str, Any] = {
    "type": "host",
    "v": 1,
    "host": "gpu1",
    "boot_id": "b1",
    "clock": {"synchronised": True, "max_error_us": 1500},
    "links_bits_s": {"mlx5_0/1": 100e9},
}


def tick(s: float, **parts: Any) -> dict[str, Any]:
    return {"mono_ns": int(s * 1e9), "wall_ns": int((1000 + s) * 1e9), **parts}


def mount(
    read_ops: int, *, normal: int = 0, direct: int = 0, served: int | None = None, rtt: int = 0
) -> dict[str, Any]:
    size = read_ops * MIB if served is None else served
    return {
        "/kv": {
            "bytes": [normal, 0, direct, 0, size, 0, 0, 0],
            "ops": {"READ": [read_ops, read_ops, 0, read_ops * 70, read_ops * (MIB + 70), 0, rtt, rtt, 0]},
            "xprt": {"lines": 1},
        }
    }


def write(path: Path, *lines: dict[str, Any], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def test_a_full_link_reads_as_bandwidth_and_depth_not_as_latency() -> None:
    """10,441 operations a second of 1 MiB at 8.265 ms: 10.95 GB/s with 86 requests in flight."""
    ops = 10_441 * 10
    a = tick(0, nfs=mount(0))
    b = tick(10, nfs=mount(ops, direct=ops * MIB, rtt=round(ops * 8.265)))
    (read,) = nfs_rates(a, b)
    assert read.payload_gb_s == pytest.approx(10.948, abs=0.001)
    assert read.ops_s == pytest.approx(10_441)
    assert read.kib_op == pytest.approx(1024.14, abs=0.01)
    assert read.wire_gb_s * 1e9 / 1024 / 1000 == pytest.approx(10_693, abs=1)  # what nfsiostat calls MB/s
    assert read.rtt_ms == pytest.approx(8.265, abs=0.001)
    assert read.depth == pytest.approx(86.3, abs=0.1)
    assert read.retransmissions == 0
    assert cache_suspicions(a, b) == []


def test_use_of_a_link() -> None:
    a = tick(0, rdma={"mlx5_0/1": {"port_rcv_data": 0, "port_xmit_data": 0}}, net={"lo": [0, 0, 0, 0]})
    b = tick(
        2,
        rdma={"mlx5_0/1": {"port_rcv_data": 22_000_000_000, "port_xmit_data": 9}},
        net={"lo": [10, 0, 0, 0]},
    )
    port, lo = link_rates(a, b, HEADER["links_bits_s"])
    assert (port.link, port.in_gb_s, port.use) == ("mlx5_0/1", 11.0, pytest.approx(0.88))
    assert (lo.link, lo.use) == ("lo", None)


def test_reads_that_the_server_never_saw_are_the_page_cache() -> None:
    a = tick(0, nfs=mount(0))
    b = tick(1, nfs=mount(1, normal=50 * MIB, served=MIB))
    (suspicion,) = cache_suspicions(a, b)
    assert (suspicion.read, suspicion.served) == (50 * MIB, MIB)
    assert "page cache" in str(suspicion)
    c = tick(1, nfs=mount(10))
    assert cache_suspicions(a, c) == []
    assert [s.read for s in cache_suspicions(a, c, claimed=100 * MIB)] == [100 * MIB]


def test_remounts_and_missing_parts_give_nothing() -> None:
    assert nfs_rates(tick(0, nfs=mount(5)), tick(1, nfs=mount(2))) == []
    assert nfs_rates(tick(0), tick(1, nfs=mount(2))) == []
    assert nfs_rates(tick(1, nfs=mount(0)), tick(1, nfs=mount(2))) == []
    assert link_rates(tick(0), tick(1), {}) == []


def test_disks() -> None:
    a, b = (
        tick(0, disk={"vda": [0, 0, 0, 0, 0, 0, 0, 0]}),
        tick(2, disk={"vda": [1, 4e9, 1, 0, 0, 0, 9, 3000]}),
    )
    (disk,) = disk_rates(a, b)
    assert (disk.read_gb_s, disk.write_gb_s, disk.depth) == (2.0, 0.0, 1.5)


@pytest.mark.parametrize(
    ("before", "after", "bypassed"),
    [
        ({"io_stats": 1, "Reads.n": 5}, {"io_stats": 1, "Reads.n": 5}, True),
        ({"io_stats": 1, "Reads.n": 5}, {"io_stats": 1, "Reads.n": 6}, False),
        ({"io_stats": 0, "Reads.n": 5}, {"io_stats": 0, "Reads.n": 5}, None),
        ({}, {}, None),
    ],
)
def test_gpudirect_is_judged_only_where_it_counts(before: Any, after: Any, bypassed: bool | None) -> None:
    assert gds_bypassed(tick(0, nvfs=before), tick(1, nvfs=after)) is bypassed


def test_clocks() -> None:
    other = {"boot_id": "b2", "clock": {"synchronised": True, "max_error_us": 500}}
    assert clock_offset(HEADER, HEADER).bound_s == 0
    both = clock_offset(HEADER, other)
    assert both.bound_s == pytest.approx(0.002)
    assert both.proven
    unsynchronised = clock_offset(
        HEADER, {"boot_id": "b2", "clock": {"synchronised": False, "max_error_us": 1}}
    )
    assert unsynchronised.bound_s is None
    assert not unsynchronised.proven
    assert "client" in unsynchronised.why
    late = {"boot_id": "b2", "clock": {"synchronised": True, "max_error_us": 700_000}}
    assert not clock_offset(HEADER, late).proven


def test_a_cut_line_is_counted(tmp_path: Path) -> None:
    log = read_host(write(tmp_path / "h", HEADER, tick(1), tick(2), tail='{"mono_ns":3'))
    assert [t["mono_ns"] for t in log.ticks] == [1e9, 2e9]
    assert log.damaged == 1


def test_a_restarted_sampler_goes_on_and_a_rebooted_machine_does_not(tmp_path: Path) -> None:
    assert len(read_host(write(tmp_path / "h", HEADER, tick(1), HEADER, tick(2))).ticks) == 2
    with pytest.raises(InputError, match="rebooted"):
        read_host(write(tmp_path / "h", HEADER, tick(1), {**HEADER, "boot_id": "b2"}, tick(2)))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [([tick(1)], "no line of type"), ([{**HEADER, "v": 9}], "version 9"), ([], "no line")],
)
def test_files_of_something_else(tmp_path: Path, lines: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_host(write(tmp_path / "h", *lines))
    with pytest.raises(InputError, match="cannot be read"):
        read_host(tmp_path / "none")


def run_folder(tmp_path: Path) -> Path:
    pages = [("start", 1), ("tick", 1.5), ("round:0", 4), ("round:1", 8), ("end", 9)]
    lines = [
        {"mono_ns": 0, "wall_ns": int((1000 + s) * 1e9), "endpoint": "e", "label": label}
        for label, s in pages
    ]
    write(tmp_path / "server.jsonl", *lines, tail='{"mono')
    return tmp_path


def test_rounds_are_found_in_the_run_and_covered_by_samples(tmp_path: Path) -> None:
    whole, first, second = windows(run_folder(tmp_path))
    assert (whole.label, first.label, second.label) == ("whole run", "round 0", "round 1")
    assert (second.end_ns - second.start_ns) / 1e9 == 4
    log = read_host(write(tmp_path / "h", HEADER, *(tick(s) for s in range(1, 8))))
    pair = within(log, first)
    assert pair is not None
    assert (pair[0]["mono_ns"], pair[1]["mono_ns"]) == (1e9, 4e9)
    assert within(log, second) is None  # samples end in mid-round
    assert within(log, Window("x", 0, 1)) is None


def test_the_command_shows_rates_and_what_is_not_covered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = [tick(s, nfs=mount(s * 100, rtt=s * 50)) for s in range(1, 8)]
    host = write(tmp_path / "h", HEADER, *ticks)
    assert main(["probe-host", "--read", str(host), "--run", str(run_folder(tmp_path)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["windows"][0]["label"] == "round 0"
    assert report["windows"][0]["nfs"][0]["ops_s"] == pytest.approx(100)
    assert report["not_covered"] == ["whole run", "round 1"]
    assert report["clock_offset"]["proven"] is False
    assert main(["probe-host", "--read", str(host)]) == 0
    text = capsys.readouterr().out
    assert "Little's law" in text
    assert "READ /kv" in text


def test_what_the_connector_says_it_loaded_is_compared_with_the_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [
        {
            "wall_ns": int((1000 + s) * 1e9),
            "label": label,
            "counters": {"vllm:kv_offload_load_bytes_total": loaded},
        }
        for label, s, loaded in (("start", 1, 0.0), ("round:0", 4, 9e9), ("end", 5, 9e9))
    ]
    write(tmp_path / "server.jsonl", *pages)
    host = write(tmp_path / "h", HEADER, *(tick(s, nfs=mount(s * 100)) for s in range(1, 8)))
    assert main(["probe-host", "--read", str(host), "--run", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (words,) = next(w for w in report["windows"] if w["label"] == "round 0")["page_cache"]
    assert "9.00 GB were read" in words


@pytest.mark.parametrize(
    "words",
    [["--run", "x"], ["--json"], ["--read", "no-such-file"], ["--interval", "nan"], ["--read", __file__]],
)
def test_a_mistake_is_exit_2_and_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["probe-host", *words])
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 2
    assert "Traceback" not in capsys.readouterr().err
