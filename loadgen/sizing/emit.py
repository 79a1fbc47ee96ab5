"""What to run for the arms of a comparison: vLLM's command lines and LMCache's YAML, each line with its reason."""

from __future__ import annotations

import importlib.metadata
import math
import re
import shlex
from pathlib import Path

from loadgen.errors import InputError
from loadgen.outfile import write_file
from loadgen.sizing.plan import Assumptions

_NEWEST = "0.5.6"  # LMCache whose key names were read
_RENAMED = (0, 4, 4)  # cufile_buffer_size became gds_buffer_size, without an alias


def lmcache_version(named: str | None) -> str:
    """The version named, else the installed one, else the newest that is known."""
    if named:
        return named
    try:
        return importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        return _NEWEST


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if not match:
        raise InputError(f"{version!r} is no LMCache version; write it like 0.5.3")
    return tuple(int(part or 0) for part in match.groups())


def lmcache_yaml(given: Assumptions, staging_gib: float, gds_path: str, version: str) -> str:
    """LMCache's configuration of the offload arm."""
    key = "gds_buffer_size" if _release(version) >= _RENAMED else "cufile_buffer_size"
    return "\n".join(
        (
            f"# LMCache {version}, written by loadgen size",
            "# tokens of one stored object; only whole chunks are found again",
            f"chunk_size: {given.chunk}",
            "# the CPU tier is on by default and would answer in place of the storage",
            "local_cpu: false",
            "max_local_cpu_size: 0",
            "# where the KV goes; nothing there is ever evicted, and a restart finds it again",
            f"gds_path: {_yaml(gds_path)}",
            f"# MiB a GPU, outside vLLM's share: one load must fit whole. {'Called cufile_buffer_size up to 0.4.3' if key.startswith('gds') else 'Called gds_buffer_size from 0.4.4 on'}",
            f"{key}: {math.ceil(staging_gib * 1024)}",
            "# tokens of the answer are not stored: the next turn prefills them again",
            "save_decode_cache: false",
            "",
        )
    )


def write(
    folder: Path,
    model: str,
    given: Assumptions,
    *,
    staging_gib: float,
    resident_tokens: float | None,
    gpu_memory_gib: float | None,
    utilization: float,
    gds_path: str,
    version: str,
    sliding: bool = False,
) -> list[Path]:
    """Write `off.sh`, `offload.sh`, `off-equal-pool.sh` and `lmcache.yaml`. Raises InputError when they cannot be right."""
    _release(version)
    if not 0 < utilization <= 1:
        raise InputError(f"--gpu-memory-utilization must be above 0 and at most 1, not {utilization}")
    lowered = None
    if gpu_memory_gib is not None:
        lowered = utilization - staging_gib / gpu_memory_gib
        if lowered <= 0:
            raise InputError(
                f"a staging buffer of {staging_gib:g} GiB leaves vLLM nothing of {gpu_memory_gib:g} GiB; give a smaller --staging-gib-per-gpu"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    common = [
        (f"vllm serve {shlex.quote(model)}", "the same model, revision and vLLM in every arm"),
        (f"--tensor-parallel-size {given.tp}", "sets how much KV each GPU holds"),
        (f"--max-model-len {given.context + 8192}", "the context and room for turns and answers"),
        ("--enable-prompt-tokens-details", "usage tells how many tokens were cached"),
    ]
    if given.dtype == "fp8":
        common.append(
            ("--kv-cache-dtype fp8", "1 byte for every KV element; the weights' type says nothing about it")
        )
    if sliding:
        common.append(
            (
                "--disable-hybrid-kv-cache-manager",
                "the connector turns it off (vLLM 0.20): without this the arms have different memory layouts",
            )
        )
    share = [(f"--gpu-memory-utilization {utilization:.3f}", "all HBM to weights and the KV pool")]
    lower = [
        (
            f"--gpu-memory-utilization {utilization if lowered is None else lowered:.3f}",
            f"{staging_gib:g} GiB less: LMCache takes its buffer after vLLM has measured"
            if lowered is not None
            else f"LOWER THIS BY HAND by {staging_gib:g} GiB a GPU (give --gpu-memory-gib and it is done): LMCache takes its buffer after vLLM has measured",
        )
    ]
    connector = [
        (
            """--kv-transfer-config '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'""",
            "loads inside the forward pass: its time is in request_prefill_time",
        )
    ]
    environment = [
        ('LMCACHE_CONFIG_FILE="$(dirname "$0")/lmcache.yaml"', "the file beside this script"),
        ("LMCACHE_TRACK_USAGE=false", "it phones home otherwise"),
        ("PYTHONHASHSEED=0", "keys must be the same in every process and after a restart"),
    ]
    files = {
        "off.sh": _script(
            "off: no offload, equal GPU memory", [("PYTHONHASHSEED=0", "as in the other arm")], common + share
        ),
        "offload.sh": _script("offload: KV in external storage", environment, common + lower + connector),
        "lmcache.yaml": lmcache_yaml(given, staging_gib, gds_path, version),
    }
    if resident_tokens is not None:
        blocks = math.floor(resident_tokens / 16)
        pool = [
            (
                f"--num-gpu-blocks-override {blocks}",
                "as many KV blocks as offload has: separates the lost HBM from the gained tier",
            )
        ]
        files["off-equal-pool.sh"] = _script(
            "off-equal-pool: no offload, the pool of offload",
            [("PYTHONHASHSEED=0", "as in the other arms")],
            common + share + pool,
        )
    paths = []
    for name, text in files.items():
        path = folder / name
        write_file(path, text)
        if name.endswith(".sh"):
            path.chmod(0o755)
        paths.append(path)
    return paths


def _script(title: str, environment: list[tuple[str, str]], command: list[tuple[str, str]]) -> str:
    lines = ["#!/bin/bash", f"# {title}. Written by loadgen size", "set -eu"]
    for assignment, reason in environment:
        lines += [f"# {reason}", f"export {assignment}"]
    lines.append("command=(")
    for word, reason in command:
        lines += [f"  # {reason}", f"  {word}"]
    lines += [")", 'exec "${command[@]}" "$@"', ""]
    return "\n".join(lines)


def _yaml(text: str) -> str:
    """A string that YAML reads as it is."""
    return "'" + text.replace("'", "''") + "'"
