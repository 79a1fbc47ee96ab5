"""Builds the package as it would be released and tries it: reproducible, complete, installable, running.

    python deploy/package.py [--python python3.12 …] [--out dist] [--sbom]

Builds wheel and sdist twice from the committed files and compares the bytes; builds the wheel from the sdist, too; looks at
what is inside; installs the wheel into an empty environment of each Python and runs it there, away from the checkout.
`--sbom` writes that environment's bill of materials (CycloneDX JSON). Ends with 1 at the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IN_WHEEL = (
    "loadgen/_commit.txt",
    "loadgen-locust.pth",
    "loadgen/data/locustfiles/agent_loop.py",
    "loadgen/data/locustfiles/capacity.py",
    "loadgen/data/corpora/benchmark.toml",
    "loadgen/data/corpora/agent/system.md",
    "loadgen/data/corpora/recipe.schema.json",
    "loadgen/data/traces/fan-out.jsonl.zst",
    "loadgen/data/workloads/sweep.toml",
    "loadgen/data/workloads/lablup-vast.toml",
    "loadgen/observe/live.html",
    "loadgen/observe/live.js",
    "loadgen/report/assets/uPlot.iife.min.js",
    "loadgen/report/assets/uPlot.LICENSE",
    "loadgen/report/assets/report.css",
    "loadgen/report/schemas/",
    "loadgen/sim/profiles/",
)
IN_SDIST = (
    *(name.replace("loadgen/data/", "") for name in IN_WHEEL),
    "tests/",
    "docs/index.md",
    "deploy/Dockerfile",
    "examples/ci/slo.toml",
    "LICENSE",
    "hatch_build.py",
)
NEVER = re.compile(r"__pycache__|\.pyc$|(^|/)\.(git|env|venv|lab|hypothesis)(/|$)|(^|/)runs/|id_rsa|\.key$")


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    ok: tuple[int, ...] = (0,),
) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode not in ok:
        raise SystemExit(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout + done.stderr


def expect(true: object, sentence: str) -> None:
    if not true:
        raise SystemExit(f"package: {sentence}")


def checkout(commit: str, folder: Path) -> Path:
    """The files of a commit, with the history that tells its name."""
    run("git", "clone", "-q", "--no-checkout", ROOT, folder)
    run("git", "-C", folder, "checkout", "-q", "--detach", commit)
    return folder


def build(tree: Path, out: Path, epoch: str, *what: str) -> dict[str, str]:
    """SHA-256 of each file that was built, by name."""
    epoch = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    run(
        sys.executable,
        "-m",
        "build",
        *what,
        "--outdir",
        out,
        tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def inside(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel; RECORD is left out, since it lists them in the order in which they were added."""
    archive = zipfile.ZipFile(wheel)
    return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def contains(name: str, files: Iterable[str], wanted: Iterable[str]) -> None:
    found = list(files)
    missing = [
        want
        for want in wanted
        if not any(file == want or (want.endswith("/") and file.startswith(want)) for file in found)
    ]
    expect(not missing, f"{name} lacks {', '.join(missing)}")
    stray = [file for file in found if NEVER.search(file)]
    expect(not stray, f"{name} holds {', '.join(stray)}")


def try_out(python: str, wheel: Path, commit: str, folder: Path) -> Path:
    """Install into an empty environment and run it; returns that environment's Python."""
    run(python, "-m", "venv", folder / "env")
    tools = folder / "env" / "bin"
    run(tools / "pip", "install", "-q", wheel)
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "VIRTUAL_ENV") and not k.startswith("LOADGEN_")
    }
    env |= {"LOADGEN_CACHE": str(folder / "cache"), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def here(*command: str, ok: tuple[int, ...] = (0,)) -> str:
        return run(*command, cwd=folder, env=env, ok=ok)

    expect(
        f"({commit[:12]})" in here("loadgen", "--version"), "the installed version does not show its commit"
    )
    locustfile = here("loadgen", "path", "agent_loop.py").strip()
    expect("site-packages" in locustfile, f"the locustfile is at {locustfile}")
    expect(
        "--trace" in here("locust", "-f", locustfile, "--help"),
        "Locust's --help does not show loadgen's flags",
    )
    here("loadgen", "trace", "validate", here("loadgen", "path", "fan-out.jsonl.zst").strip())
    here("loadgen", "completion", "bash")
    small = ("--contexts", "2", "--turns", "2", "--tokens", "2000", "--output-tokens", "8")
    here("loadgen", "demo", *small, "--out", "runs", ok=(0, 3))
    expect(list(folder.glob("runs/*/report.html")), "the demo left no report")
    return tools / "python"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", action="append", help="interpreter to install into; repeat it (default: this one)"
    )
    parser.add_argument("--out", type=Path, help="keep what was built here")
    parser.add_argument("--sbom", action="store_true", help="also write sbom.cdx.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        commit, epoch = run("git", "-C", ROOT, "log", "-1", "--format=%H %ct").split()
        both = ("--sdist", "--wheel")
        first = build(checkout(commit, work / "a"), work / "dist", epoch, *both)
        second = build(checkout(commit, work / "elsewhere" / "b"), work / "again", epoch, *both)
        expect(first == second, f"two builds of one commit differ: {first} and {second}")
        wheel, sdist = next((work / "dist").glob("*.whl")), next((work / "dist").glob("*.tar.gz"))
        with tarfile.open(sdist) as archive:
            archive.extractall(work, filter="data")
        build(work / sdist.name.removesuffix(".tar.gz"), work / "from-sdist", epoch, "--wheel")
        same = inside(wheel) == inside(work / "from-sdist" / wheel.name)
        expect(same, "the wheel built from the sdist differs from the one built from the checkout")
        contains("the wheel", zipfile.ZipFile(wheel).namelist(), IN_WHEEL)
        with tarfile.open(sdist) as archive:
            contains("the sdist", (name.partition("/")[2] for name in archive.getnames()), IN_SDIST)
        for name, digest in first.items():
            print(f"{digest}  {name}")
        environment = Path(sys.executable)
        for number, python in enumerate(args.python or [sys.executable]):
            environment = try_out(python, wheel, commit, work / f"try{number}")
            print(f"runs on {run(environment, '--version').strip()}")
        out = args.out or work / "kept"
        out.mkdir(parents=True, exist_ok=True)
        for built in (wheel, sdist):
            shutil.copy(built, out)
        if args.sbom:
            run(sys.executable, "-m", "venv", work / "tools")
            run(work / "tools" / "bin" / "pip", "install", "-q", "cyclonedx-bom")
            words = ("environment", environment, "--output-reproducible", "-o", out / "sbom.cdx.json")
            run(work / "tools" / "bin" / "cyclonedx-py", *words)
            print(
                f"{len(re.findall('bom-ref', (out / 'sbom.cdx.json').read_text()))} entries in {out / 'sbom.cdx.json'}"
            )


if __name__ == "__main__":
    main()
