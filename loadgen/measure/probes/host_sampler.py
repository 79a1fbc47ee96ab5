"""Samples the counters of the machine that it runs on, one JSON line a second. Standard library only, one file:

    scp host_sampler.py gpu-node: && ssh gpu-node python3 host_sampler.py --out host.jsonl

(`loadgen probe-host --path` prints where this file is.) No root needed, nothing is written but the output, and
what a machine does not have is left out of the line. Python 3.8 or newer, Linux. Ends on SIGTERM or Ctrl-C.

The first line (`"type": "host"`) says what the machine is; each later one is a tick with `mono_ns` and `wall_ns` and
cumulative counters, in bytes and milliseconds as the kernel keeps them:

    nfs   per mount: `bytes` (the eight numbers of mountstats), `ops` {name: [ops, transmissions, timeouts, bytes sent,
          bytes received, queue ms, round-trip ms, execute ms, errors]}, `xprt`: all transports of the mount added up
    disk  per block device: [reads, bytes read, ms reading, writes, bytes written, ms writing, in flight, weighted ms]
    net   per Ethernet interface: [bytes in, bytes out, dropped in, dropped out]. RoCE traffic is not in there
    rdma  per RDMA port: counters; port_rcv_data and port_xmit_data come as bytes (the kernel counts words of four)
    nvfs  GPUDirect Storage: the numbers of /proc/driver/nvidia-fs/stats
    mem   Dirty, Writeback and Cached, in bytes
    gpu   [index, MiB used, MiB total, utilisation %] of every GPU, every ten seconds, where nvidia-smi exists
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

VERSION = 1
GPU_INTERVAL_S = 10.0


def read(path: str) -> str:
    """The text of a file, empty where it does not exist or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def number(path: str) -> int | None:
    text = read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def parse_mountstats(text: str) -> dict[str, dict[str, Any]]:
    """NFS mounts of /proc/self/mountstats by mount point; other file systems are skipped.

    A mount over several connections (nconnect, multipath) has one xprt line each: they are added up.
    """
    mounts: dict[str, dict[str, Any]] = {}
    mount: dict[str, Any] | None = None
    for line in text.splitlines():
        head = re.match(r"device (.+) mounted on (.+) with fstype (\S+)(?: statvers=(\S+))?$", line)
        if head:
            mount = None
            if head.group(3).startswith("nfs") and head.group(4):
                mount = {"device": head.group(1), "opts": "", "bytes": [], "ops": {}, "xprt": {"lines": 0}}
                mounts[_unescape(head.group(2))] = mount
            continue
        if mount is None:
            continue
        word, _, rest = line.strip().partition(":")
        values = rest.split()
        if word == "opts":
            mount["opts"] = rest.strip()
        elif word == "bytes":
            mount["bytes"] = _ints(values)
        elif word == "xprt":
            _add_transport(mount["xprt"], values)
        elif len(values) >= 8 and all(v.isdigit() for v in values) and values[0] != "0" and " " not in word:
            mount["ops"][word] = _ints(values[:9])
    return mounts


def _add_transport(total: dict[str, Any], values: list[str]) -> None:
    # tcp:  port bind connects connect_time idle sends recvs bad_xids requests_u backlog_u …
    # rdma: port bind connects connect_time idle sends recvs bad_xids backlog_u read_chunks …
    if not values:
        return
    kind, fields = values[0], _ints(values[1:])
    start = 1 if kind == "udp" else 2
    backlog = {"tcp": 9, "rdma": 8}.get(kind)
    total["lines"] += 1
    total["proto"] = kind
    names = {"connects": start, "sends": 5, "recvs": 6, "bad_xids": 7}
    if kind == "udp":
        names = {"sends": 2, "recvs": 3, "bad_xids": 4}
    if backlog is not None:
        names["backlog"] = backlog
    for name, index in names.items():
        if index < len(fields):
            total[name] = total.get(name, 0) + fields[index]


def parse_diskstats(text: str) -> dict[str, list[int]]:
    """Whole disks and partitions that were ever used, without loop, RAM and optical devices."""
    disks = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 14 or re.match(r"(loop|ram|sr|fd|zram)\d", fields[2]):
            continue
        n = _ints(fields[3:14])
        if n[0] or n[4]:
            disks[fields[2]] = [n[0], n[2] * 512, n[3], n[4], n[6] * 512, n[7], n[8], n[10]]
    return disks


def parse_nvfs(text: str) -> dict[str, int]:
    """`Reads : n=5 ok=5` becomes {"Reads.n": 5, "Reads.ok": 5}; `io_stats` says whether IO is counted at all."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name.strip().startswith("IO stats"):
            found["io_stats"] = int("Enabled" in rest.split(",")[0])
        if name.strip().startswith("GPU"):  # GPU 0000:34:00.0 uuid:… : Registered_MiB=0 …
            name, rest = " ".join(line.split()[:2]), line
        for key, value in re.findall(r"([\w()/%-]+)\s*=\s*(-?\d+)", rest):
            found[f"{name.strip()}.{key}"] = int(value)
    return found


def parse_meminfo(text: str) -> dict[str, int]:
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE))
    return {key: int(found[key]) * 1024 for key in ("Dirty", "Writeback", "Cached") if key in found}


def ethernet(root: str = "/sys/class/net") -> dict[str, list[int]]:
    links = {}
    for path in sorted(glob.glob(root + "/*/statistics")):
        values = [number(path + "/" + f) for f in ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")]
        if None not in values:
            links[path.split("/")[-2]] = [int(v or 0) for v in values]
    return links


def rdma(root: str = "/sys/class/infiniband") -> dict[str, dict[str, int]]:
    wanted = [
        "port_rcv_data",
        "port_xmit_data",
        "port_rcv_packets",
        "port_xmit_packets",
        "port_xmit_wait",
        "port_rcv_errors",
        "link_downed",
        "out_of_sequence",
        "packet_seq_err",
        "rnr_nak_retry_err",
        "np_cnp_sent",
        "rp_cnp_handled",
        "roce_adp_retrans",
    ]
    ports = {}
    for port in sorted(glob.glob(root + "/*/ports/*")):
        counters = {}
        for name in wanted:
            value = number(port + "/counters/" + name)
            if value is None:
                value = number(port + "/hw_counters/" + name)
            if value is not None:
                counters[name] = value * 4 if name.endswith("_data") else value
        if counters:
            ports[port.split("/")[-3] + "/" + port.split("/")[-1]] = counters
    return ports


def link_rates() -> dict[str, float]:
    """Bits a second of every link that says so, Ethernet and RDMA ("100 Gb/sec (4X EDR)")."""
    rates: dict[str, float] = {}
    for path in glob.glob("/sys/class/net/*/speed"):
        speed = number(path)
        if speed is not None and speed > 0:
            rates[path.split("/")[-2]] = speed * 1e6
    for path in glob.glob("/sys/class/infiniband/*/ports/*/rate"):
        text = read(path).split()
        if text and re.fullmatch(r"[\d.]+", text[0]):
            rates[path.split("/")[-4] + "/" + path.split("/")[-2]] = float(text[0]) * 1e9
    return rates


def clock_state() -> dict[str, Any]:
    """What the kernel thinks of its wall clock: synchronised (NTP, PTP) or not, and its own bound on the error."""

    class Timex(ctypes.Structure):
        _fields_ = [
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_char * 256),
        ]

    try:
        timex = Timex()  # modes 0: only reads
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return {}
    if state < 0:
        return {}
    unsynchronised = bool(timex.status & 0x40) or state == 5  # STA_UNSYNC, TIME_ERROR
    return {"synchronised": not unsynchronised, "max_error_us": int(timex.maxerror)}


def describe() -> dict[str, Any]:
    """The first line: which machine, how its storage is mounted, how fast its links are."""
    mounts = parse_mountstats(read("/proc/self/mountstats"))
    return {
        "type": "host",
        "v": VERSION,
        "mono_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "host": platform.node(),
        "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
        "kernel": platform.release(),
        "clock": clock_state(),
        "links_bits_s": link_rates(),
        "nfs": {path: {k: mount[k] for k in ("device", "opts")} for path, mount in mounts.items()},
        "nvfs": bool(read("/proc/driver/nvidia-fs/stats")),
    }


def tick() -> dict[str, Any]:
    """One line of counters; parts that are empty are left out."""
    mono, wall = time.monotonic_ns(), time.time_ns()
    nfs = parse_mountstats(read("/proc/self/mountstats"))
    parts = {
        "nfs": {path: {k: mount[k] for k in ("bytes", "ops", "xprt")} for path, mount in nfs.items()},
        "disk": parse_diskstats(read("/proc/diskstats")),
        "net": ethernet(),
        "rdma": rdma(),
        "nvfs": parse_nvfs(read("/proc/driver/nvidia-fs/stats")),
        "mem": parse_meminfo(read("/proc/meminfo")),
    }
    return {"mono_ns": mono, "wall_ns": wall, **{k: v for k, v in parts.items() if v}}


def gpus() -> list[list[int]]:
    """[index, MiB used, MiB total, utilisation %] of every GPU; empty where nvidia-smi fails."""
    command = ["nvidia-smi", "--query-gpu=index,memory.used,memory.total,utilization.gpu"]
    try:
        text = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
        ).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [_ints(row) for row in rows if len(row) == 4 and all(cell.isdigit() for cell in row)]


def sample(out: Any, interval_s: float, duration_s: float | None, stop: threading.Event) -> int:
    """Write the first line and then ticks until `stop` or for `duration_s`; returns the number of ticks."""
    latest: list[list[list[int]]] = []
    if shutil.which("nvidia-smi"):  # slow (a tenth of a second or more), so never between two ticks

        def watch() -> None:
            while not stop.wait(0 if not latest else GPU_INTERVAL_S):
                latest[:] = [gpus()]

        threading.Thread(target=watch, daemon=True).start()
    out.write(json.dumps(describe()) + "\n")
    start, count, shown = time.monotonic(), 0, None
    while not stop.is_set():
        line = tick()
        if latest and latest[0] is not shown:
            shown = latest[0]
            line["gpu"] = shown
        out.write(json.dumps(line, separators=(",", ":")) + "\n")
        out.flush()
        count += 1
        if duration_s is not None and time.monotonic() - start + interval_s > duration_s:
            break
        stop.wait(max(0.0, start + count * interval_s - time.monotonic()))
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Sample this machine's storage, network and GPU counters as JSON lines."
    )
    parser.add_argument(
        "--out", default="-", metavar="FILE", help="file to append to (default: standard output)"
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between ticks (default: 1)"
    )
    parser.add_argument(
        "--duration", type=float, default=None, metavar="S", help="stop after so many seconds"
    )
    args = parser.parse_args(arguments)
    if not 0.05 <= args.interval <= 3600:
        parser.error("--interval must be from 0.05 to 3600 seconds")
    if not os.path.exists("/proc/self/mountstats"):
        print(
            "host_sampler: this machine has no /proc/self/mountstats; it reads Linux's counters",
            file=sys.stderr,
        )
        return 2
    stop = threading.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: stop.set())
    try:
        out = sys.stdout if args.out == "-" else open(args.out, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        print(f"host_sampler: {args.out} cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    try:
        sample(out, args.interval, args.duration, stop)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"host_sampler: {args.out} cannot be written any more ({error.strerror})", file=sys.stderr)
        return 3
    return 0


def _ints(values: list[str]) -> list[int]:
    return [int(v) if v.lstrip("-").isdigit() else 0 for v in values]


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), path)


if __name__ == "__main__":
    sys.exit(main())
