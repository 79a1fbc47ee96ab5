"""Small repositories and folders that the tests of this package build from."""

import os
import random
import subprocess

import pytest

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "offset",
    "buffer",
    "commit",
    "index",
    "value",
    "result",
    "parse",
    "token",
    "stream",
    "reader",
    "self",
    "return",
]


def source_file(seed: int, lines: int = 60) -> str:
    """A Python-like file that differs for every seed."""
    rng = random.Random(seed)
    body = [
        f"def {rng.choice(WORDS)}_{seed}_{n}({rng.choice(WORDS)}):\n    return {rng.choice(WORDS)} + {rng.randrange(1000)}\n"
        for n in range(lines)
    ]
    return f'"""Module {seed}."""\n\n' + "\n".join(body)


def _git(folder, *arguments):
    environment = os.environ | {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z", "GIT_CONFIG_GLOBAL": os.devnull,
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment
    )
    return done.stdout.decode().strip()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """40 files of about 900 tokens each, in three folders."""
    root = tmp_path_factory.mktemp("plain")
    for n in range(40):
        path = root / ("core", "net", "ui/widgets")[n % 3] / f"module_{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source_file(n))
    return root


@pytest.fixture(scope="session")
def repository(tmp_path_factory, folder):
    """The same files in git, two commits: the second changes five files."""
    root = tmp_path_factory.mktemp("repo")
    _git(root, "init", "-q", "-b", "main")
    for path in sorted(folder.rglob("*.py")):
        target = root / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    _git(root, "add", ".")
    _git(root, "commit", "-q", "-m", "first")
    _git(root, "tag", "v1")
    for path in sorted(root.rglob("module_1?.py"))[:5]:
        path.write_text(path.read_text() + "\n# changed\n")
    _git(root, "commit", "-q", "-a", "-m", "Change five modules")
    return root


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADGEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def git():
    """`git(folder, *arguments)`: runs git with a fixed author and date and returns what it printed."""
    return _git
