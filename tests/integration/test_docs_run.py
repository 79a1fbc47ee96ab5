"""Every command in a fenced block of the documentation is run as it stands, against the simulated endpoint.

A page's blocks run one after the other in one checkout, so that a later one can use what an earlier one left. The page's
`http://127.0.0.1:8000` is the endpoint. Blocks with `<!-- run: nightly -->` are left to the nightly run; those with
`<!-- run: skip … -->` need something that no test has, and say what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from doc_pages import DOCS, Block, blocks, pages

# What a newcomer types first runs with every change; the other pages run nightly.
FIRST = ("quickstart.md", "first-endpoint.md", "replay.md")
SHELL = [page for page in pages() if any(block.language == "sh" for block in blocks(page))]


def checkout(folder: Path) -> None:
    """Where a reader stands: in a checkout, as it is committed. `-P` keeps Python from importing it."""
    if (DOCS.parent / ".git").exists() and shutil.which("git"):
        subprocess.run(["git", "clone", "-q", str(DOCS.parent), str(folder)], check=True)
    else:
        pytest.skip("needs a git checkout")


def run_page(page: Path, folder: Path, cache: Path, endpoint: str, *, nightly: bool) -> int:
    """Run a page's blocks; returns how many ran."""
    tools = folder / "bin"
    tools.mkdir()
    folder = folder / "checkout"
    checkout(folder)
    for name in ("loadgen", "locust"):  # the ones under test, whatever else is installed
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m {name} "$@"\n')
        tool.chmod(0o755)
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("LOADGEN_", "LOCUST_", "OPENAI_", "GITHUB_"))
    }
    environment |= {
        "LOADGEN_CACHE": str(cache),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(DOCS.parent),
    }
    ran = 0
    for block in blocks(page):
        if (
            block.language != "sh"
            or block.mode in ("skip", "endpoint")
            or (block.mode == "nightly" and not nightly)
        ):
            continue
        run_block(block, folder, environment, endpoint)
        ran += 1
    return ran


def run_block(block: Block, folder: Path, environment: dict[str, str], endpoint: str) -> None:
    code = block.code.replace("http://127.0.0.1:8000", endpoint)
    right = (
        {int(word) for word in block.rest.split()} if block.mode == "exit" else {0, 3}
    )  # 3: this machine was too busy
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail\ntrap 'code=$?; [ $code -eq 3 ] || exit $code' ERR\n{code}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    where = f"{block.page}:{block.line}\n{code}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode in right, f"exit code {done.returncode}, not {sorted(right)}: {where}"
    assert "Traceback" not in done.stdout + done.stderr, where


@pytest.mark.parametrize("page", [p for p in SHELL if p.name in FIRST], ids=lambda page: page.name)
def test_the_quick_commands_of_a_page_run(page: Path, tmp_path: Path, cache: Path, endpoint: str) -> None:
    run_page(page, tmp_path, cache, endpoint, nightly=False)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [p for p in SHELL if p.name not in FIRST or any(block.mode == "nightly" for block in blocks(p))],
    ids=lambda page: page.name,
)
def test_all_commands_of_a_page_run(page: Path, tmp_path: Path, cache: Path, endpoint: str) -> None:
    runnable = [
        block for block in blocks(page) if block.language == "sh" and block.mode not in ("skip", "endpoint")
    ]
    assert run_page(page, tmp_path, cache, endpoint, nightly=True) == len(runnable)


@pytest.mark.nightly
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()
    shutil.rmtree(tmp_path)
