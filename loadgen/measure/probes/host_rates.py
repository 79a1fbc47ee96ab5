"""Rates from two ticks of a host: what storage and links did between them, with the formula of every figure.

GB/s are SI (10^9 bytes). `nfsiostat` prints kB/s of 1,024 bytes with the RPC headers in them: 10,693,000 kB/s of it
are 10.95 GB/s, and 10.948 GB/s of payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORMULAS: dict[str, str] = {
    "GB/s": "payload: change of serverread (serverwrite) in mountstats / seconds / 10^9",
    "wire GB/s": "change of bytes sent + bytes received of the operation / seconds / 10^9: payload and RPC headers",
    "ops/s": "change of operations / seconds",
    "KiB/op": "change of bytes sent + received / operations / 1,024",
    "RTT": "change of round-trip ms / operations: from the request's transmission to its reply",
    "queue": "change of queue ms / operations: waiting in the client before transmission",
    "depth": "Little's law: ops/s x RTT = requests in flight. On a full link RTT is depth x size / bandwidth, no latency of storage",
    "use": "bits a second of the busier direction / the link's own rate",
}
_SERVER_READ, _SERVER_WRITE, _NORMAL_READ, _DIRECT_READ = 4, 5, 0, 2  # places in the bytes line


@dataclass(frozen=True)
class OpRates:
    """One NFS operation of one mount."""

    mount: str
    op: str
    ops: int
    ops_s: float
    payload_gb_s: float | None  # READ and WRITE only
    wire_gb_s: float
    kib_op: float
    rtt_ms: float
    queue_ms: float
    execute_ms: float
    depth: float
    retransmissions: int
    errors: int


@dataclass(frozen=True)
class LinkRates:
    link: str
    in_gb_s: float
    out_gb_s: float
    rate_bits_s: float | None
    use: float | None  # null where the link does not tell its rate


@dataclass(frozen=True)
class DiskRates:
    disk: str
    read_gb_s: float
    write_gb_s: float
    depth: float


@dataclass(frozen=True)
class CacheSuspicion:
    """What was read without the storage noticing: `read` bytes by programs (or claimed), `served` by the server."""

    mount: str
    read: int
    served: int

    def __str__(self) -> str:
        return (
            f"{self.mount}: {self.read / 1e9:.2f} GB were read, the server sent {self.served / 1e9:.2f} GB: "
            "the rest came from the page cache of this machine, so this is no measurement of the storage"
        )


def seconds(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Between two ticks, by the monotonic clock."""
    return float(b["mono_ns"] - a["mono_ns"]) / 1e9


def nfs_rates(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[OpRates]:
    """Operations that took place between two ticks, busiest first; a remounted file system is left out."""
    elapsed = seconds(a, b)
    found = []
    for mount, after in b.get("nfs", {}).items():
        before = a.get("nfs", {}).get(mount)
        if before is None or elapsed <= 0:
            continue
        data = _change(before["bytes"], after["bytes"])
        payload = {"READ": _SERVER_READ, "WRITE": _SERVER_WRITE}
        for op, now in after["ops"].items():
            change = _change(before["ops"].get(op, [0] * len(now)), now)
            if change is None or not change[0]:
                continue
            ops, sent, _, out, back, queue, rtt, execute = change[:8]
            place = payload.get(op)
            found.append(
                OpRates(
                    mount=mount,
                    op=op,
                    ops=ops,
                    ops_s=ops / elapsed,
                    payload_gb_s=None if place is None or data is None else data[place] / elapsed / 1e9,
                    wire_gb_s=(out + back) / elapsed / 1e9,
                    kib_op=(out + back) / ops / 1024,
                    rtt_ms=rtt / ops,
                    queue_ms=queue / ops,
                    execute_ms=execute / ops,
                    depth=rtt / 1000 / elapsed,
                    retransmissions=sent - ops,
                    errors=change[8] if len(change) > 8 else 0,
                )
            )
    return sorted(found, key=lambda rates: -rates.wire_gb_s)


def link_rates(a: Mapping[str, Any], b: Mapping[str, Any], bits_s: Mapping[str, float]) -> list[LinkRates]:
    """Ethernet and RDMA links that carried anything. RoCE is counted on the RDMA port, not on its Ethernet device."""
    elapsed = seconds(a, b)
    pairs: dict[str, Sequence[int] | None] = {}
    for name, now in b.get("net", {}).items():
        pairs[name] = _change(a.get("net", {}).get(name, now), now)
    for name, now in b.get("rdma", {}).items():
        before = a.get("rdma", {}).get(name, now)
        keys = ("port_rcv_data", "port_xmit_data")
        pairs[name] = _change([before.get(k, 0) for k in keys], [now.get(k, 0) for k in keys])
    found = []
    for name, change in pairs.items():
        if change is None or elapsed <= 0 or not (change[0] or change[1]):
            continue
        rate = bits_s.get(name)
        use = None if not rate else max(change[0], change[1]) * 8 / elapsed / rate
        found.append(LinkRates(name, change[0] / elapsed / 1e9, change[1] / elapsed / 1e9, rate, use))
    return sorted(found, key=lambda link: -(link.in_gb_s + link.out_gb_s))


def disk_rates(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[DiskRates]:
    """Block devices that moved anything; `depth` is the change of weighted milliseconds over the time."""
    elapsed = seconds(a, b)
    found = []
    for name, now in b.get("disk", {}).items():
        change = _change(a.get("disk", {}).get(name, now)[:6], now[:6])
        if change is None or elapsed <= 0 or not (change[1] or change[4]):
            continue
        weighted = now[7] - a.get("disk", {}).get(name, now)[7]
        found.append(
            DiskRates(name, change[1] / elapsed / 1e9, change[4] / elapsed / 1e9, weighted / 1000 / elapsed)
        )
    return sorted(found, key=lambda disk: -(disk.read_gb_s + disk.write_gb_s))


def cache_suspicions(
    a: Mapping[str, Any], b: Mapping[str, Any], claimed: int | None = None
) -> list[CacheSuspicion]:
    """Mounts that read at least 1 MB of which the server sent less than nine tenths.

    What was read is what programs read through the file system, or `claimed`: bytes that the KV connector says it
    loaded, compared with the traffic of all mounts together.
    """
    found, total = [], 0
    for mount, after in b.get("nfs", {}).items():
        change = _change(a.get("nfs", {}).get(mount, after)["bytes"], after["bytes"])
        if not change or len(change) <= _SERVER_READ:
            continue
        read, served = change[_NORMAL_READ] + change[_DIRECT_READ], change[_SERVER_READ]
        total += served
        if read >= 1_000_000 and served < 0.9 * read:
            found.append(CacheSuspicion(mount, read, served))
    if claimed is not None and b.get("nfs") and claimed >= 1_000_000 and total < 0.9 * claimed and not found:
        found.append(CacheSuspicion("all NFS mounts", claimed, total))
    return found


def gds_bypassed(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool | None:
    """True where GPUDirect Storage moved nothing between two ticks; null where its counters are absent or off."""
    before, after = a.get("nvfs"), b.get("nvfs")
    if not before or not after or not after.get("io_stats"):
        return None
    moved = [after[k] - before.get(k, 0) for k in ("Reads.n", "Writes.n", "Reads.readMiB") if k in after]
    return not any(moved) if moved else None


def _change(before: Sequence[int], after: Sequence[int]) -> list[int] | None:
    """Differences, null where a counter fell (a remount, a driver loaded anew)."""
    change = [y - x for x, y in zip(before, after, strict=False)]
    return None if not change or min(change) < 0 else change
