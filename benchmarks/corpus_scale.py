"""Large corpora: reading a repository of 13,500 files at a commit, and the memory of building 1,000 contexts.

    python benchmarks/corpus_scale.py read [--repo PATH]     # without one, a repository of 13,500 files is made
    python benchmarks/corpus_scale.py build [--contexts 1000] [--tokens 140000] [--corpus stdlib]

Prints one JSON object. `read` compares with `git cat-file --batch` through a pipe in the same run: the same bytes without
GitPython. `build` needs about 600 MB of disk; its figure is the most private memory (RssAnon) at any time, sampled every
20 ms from outside, with what the process had before the build. It is the sum over all processes that build, so what they
have in common since they were forked counts once for each; `pss_anon_most_mb` counts that once.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def made_repository(folder: Path, files: int, size: int) -> None:
    """A repository of `files` files of about `size` bytes each, cut from the standard library, through git fast-import."""
    from loadgen.corpus.folder import stdlib

    source = stdlib()
    text = b"".join(source.read(entry) or b"" for entry in source.entries if entry.path.endswith(".py"))
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)

    def stream() -> Iterator[bytes]:
        yield b"commit refs/heads/main\ncommitter x <x@example.org> 1700000000 +0000\ndata 0\n\n"
        for number in range(files):
            at = number * size % (len(text) - size)
            data = b"# %d\n" % number + text[at : at + size]
            yield b"M 644 inline d%02d/s%02d/file_%d.py\ndata %d\n%b\n" % (
                number % 90,
                number % 7,
                number,
                len(data),
                data,
            )

    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=b"".join(stream()), check=True)
    subprocess.run(["git", "-C", str(folder), "symbolic-ref", "HEAD", "refs/heads/main"], check=True)


def children_cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read(path: Path) -> dict[str, Any]:
    from loadgen import tokens
    from loadgen.corpus.git import GitSource
    from loadgen.corpus.library import Library
    from loadgen.corpus.recipe import Recipe

    def ours() -> tuple[int, int]:
        source = GitSource(path)
        found = [source.read(entry) or b"" for entry in source.entries]
        source.close()
        return len(found), sum(map(len, found))

    def bare() -> int:
        listing = subprocess.run(
            ["git", "-C", str(path), "ls-tree", "-r", "HEAD"], capture_output=True, check=True
        ).stdout
        ids = b"\n".join(line.split()[2] for line in listing.splitlines()) + b"\n"
        return len(
            subprocess.run(
                ["git", "-C", str(path), "cat-file", "--batch"], input=ids, capture_output=True, check=True
            ).stdout
        )

    def clean() -> int:
        source = GitSource(path)
        library = Library(source, Recipe(name="x"), tokens.get("tekken"))
        return sum(len(piece.text) for piece in library.pieces(library.entries))

    tokens.get("tekken")
    rounds: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": [], "clean": []}
    for _ in range(3):
        for name, work in (("ours", ours), ("bare", bare), ("clean", clean)):
            wall, cpu = time.perf_counter(), children_cpu()
            work()
            rounds[name].append((time.perf_counter() - wall, children_cpu() - cpu))
    files, size = ours()
    best = {name: min(wall for wall, _ in found) for name, found in rounds.items()}
    return {
        "files": files,
        "bytes": size,
        "read_s": round(best["ours"], 3),
        "git_cat_file_pipe_s": round(best["bare"], 3),
        "ratio": round(best["ours"] / best["bare"], 2),
        "read_filter_and_clean_s": round(best["clean"], 3),
    }


def memory(process: psutil.Process) -> tuple[int, int]:
    """(RssAnon, anonymous part of the proportional set size) of one process, in bytes; nothing once it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:
        return 0, 0
    rss = sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    pss = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon:"))
    return rss * 1024, pss * 1024


def watch(pid: int) -> None:
    """Print the most memory of `pid` and its children, in bytes, once standard input ends."""
    rss = pss = 0
    builder = psutil.Process(pid)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        others = [child for child in builder.children() if child.pid != os.getpid()]
        found = [memory(process) for process in (builder, *others)]
        rss, pss = max(rss, sum(each[0] for each in found)), max(pss, sum(each[1] for each in found))
    print(json.dumps([rss, pss]))


def build_many(corpus: str, contexts: int, tokens_each: int) -> dict[str, Any]:
    from loadgen import tokens
    from loadgen.corpus.build import build_and_account
    from loadgen.corpus.recipe import resolve

    tokenizer = tokens.get("tekken")
    before, _ = memory(psutil.Process())
    # Not a thread: with one beside it the build would not fork.
    watcher = subprocess.Popen(
        [sys.executable, __file__, "watch", "--pid", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), children_cpu()
        built = build_and_account(
            resolve(corpus), n=contexts, tokens=tokens_each, out=Path(folder) / "out", tokenizer=tokenizer
        )
        wall, cpu = time.perf_counter() - wall, children_cpu() - cpu
        most, most_once = json.loads(watcher.communicate()[0])
        size = sum(context.bytes for context in built.contexts.contexts)
    return {
        "contexts": contexts,
        "tokens": tokens_each,
        "layout": built.outcome.layout,
        "text_bytes": size,
        "max_common_prefix": built.contexts.max_common_prefix,
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "tokens_s_cpu": round(contexts * tokens_each / cpu),
        "rss_anon_before_mb": round(before / 1e6),
        "rss_anon_most_mb": round(most / 1e6),
        "pss_anon_most_mb": round(most_once / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="what", required=True)
    reading = commands.add_parser("read")
    reading.add_argument("--repo", type=Path)
    building = commands.add_parser("build")
    building.add_argument("--contexts", type=int, default=1000)
    building.add_argument("--tokens", type=int, default=140_000)
    building.add_argument("--corpus", default="stdlib")
    watching = commands.add_parser("watch")
    watching.add_argument("--pid", type=int, required=True)
    args = parser.parse_args()
    if args.what == "watch":
        watch(args.pid)
        return
    if args.what == "build":
        found = build_many(args.corpus, args.contexts, args.tokens)
    elif args.repo:
        found = read(args.repo)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made_repository(Path(folder) / "made.git", 13_500, 5_400)
            found = read(Path(folder) / "made.git")
    print(json.dumps(found | {"cpus": os.cpu_count(), "load": os.getloadavg()[0]}, indent=1))


if __name__ == "__main__":
    main()
