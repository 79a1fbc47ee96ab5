"""Repositories behind a URL: shallow copies in the user's cache, one a URL, safe under several builders."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadgen.corpus.git import GitSource, gitpython, sentence
from loadgen.corpus.source import without_credentials
from loadgen.errors import InputError
from loadgen.paths import cache_dir

_SCP = re.compile(r"^([\w.+-]+@)?[\w][\w.-]*:(?!/?/)")
_REF_NAME = re.compile(r"^[\w./+-]+$")
_FULL_ID = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?$")


def checked(url: str) -> str:
    """`url`, when git may be given it: https, ssh or file. Raises InputError for all else (`ext::` runs programs)."""
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if url.startswith("-") or "::" in url.partition("/")[0] or (not scheme and not _SCP.match(url)):
        raise InputError(
            f"{without_credentials(url)}: repositories are cloned from https, ssh and file URLs only"
        )
    if scheme and scheme not in ("https", "ssh", "file"):
        raise InputError(f"{without_credentials(url)}: {scheme} is not allowed; use https, ssh or file")
    return url


def clone(url: str, rev: str | None, *, history: int = 0) -> GitSource:
    """The repository at `url` at `rev` (default: its HEAD) with `history` commits before it.

    Only what that takes is fetched, without tags or other branches. A full commit id that is in the cache needs no network.
    """
    checked(url)
    if rev is not None and rev.startswith("-"):
        raise InputError(f"{rev!r} is not a revision")
    git = gitpython()
    folder = cache_dir("repos") / (
        hashlib.sha256(without_credentials(url).encode()).hexdigest()[:24] + ".git"
    )
    with _locked(folder):
        repo = git.Repo.init(folder, bare=True)
        repo.git.update_environment(
            GIT_ALLOW_PROTOCOL="https:ssh:file",
            GIT_TERMINAL_PROMPT="0",
            GIT_SSH_COMMAND=os.environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
            LC_ALL="C",
        )
        commit = (
            rev
            if rev and _FULL_ID.match(rev) and _has(git, repo, rev, history)
            else _fetch(git, repo, url, rev, history)
        )
        repo.close()
        (folder / "url").write_text(without_credentials(url) + "\n")
    return GitSource(folder, commit, url=url)


def _has(git: Any, repo: Any, commit: str, history: int) -> bool:
    try:
        found = int(repo.git.rev_list("--count", f"--max-count={history + 1}", commit))
        shallow = (Path(repo.git_dir) / "shallow").is_file()
    except git.GitCommandError:
        return False
    return found > history or not shallow


def _fetch(git: Any, repo: Any, url: str, rev: str | None, history: int) -> str:
    if rev is not None and not _REF_NAME.match(rev):
        return _fetch_all(git, repo, url, rev)
    options = ("--no-tags", "--no-write-fetch-head", "--quiet", "--force", f"--depth={history + 1}")
    try:
        _git_fetch(git, repo, *options, "--", url, f"{rev or 'HEAD'}:refs/loadgen/wanted")
    except git.GitCommandError as error:
        said = sentence(error)
        if rev is None or ("couldn't find remote ref" not in said and "not our ref" not in said):
            raise InputError(f"{without_credentials(url)} cannot be cloned: {said}") from None
        return _fetch_all(git, repo, url, rev)
    return str(repo.git.rev_parse("--verify", "refs/loadgen/wanted^{commit}"))


def _git_fetch(git: Any, repo: Any, *words: str) -> None:
    """`git fetch`, ended with what called it: a plain call leaves it at work when a signal unwinds this process."""
    running = repo.git.fetch(*words, as_process=True)  # which ends git when nobody holds it any more
    process = running.proc
    try:
        _, said = process.communicate()
    except BaseException:
        process.terminate()  # its ssh or https helper then reads the end of its pipe
        process.wait()
        raise
    if process.returncode:
        raise git.GitCommandError(("git", "fetch"), process.returncode, said)


def _fetch_all(git: Any, repo: Any, url: str, rev: str) -> str:
    """A short id or an expression like `v1.0~3` means nothing to a server: fetch all branches and tags and look here."""
    where = "refs/loadgen/all"
    try:
        unshallow = ("--unshallow",) if (Path(repo.git_dir) / "shallow").is_file() else ()
        _git_fetch(
            git,
            repo,
            "--quiet",
            "--force",
            "--no-tags",
            *unshallow,
            "--",
            url,
            f"+refs/heads/*:{where}/*",
            "+refs/tags/*:refs/tags/*",
        )
    except git.GitCommandError as error:
        raise InputError(f"{without_credentials(url)} cannot be cloned: {sentence(error)}") from None
    for name in (rev, f"{where}/{rev}"):
        try:
            return str(repo.git.rev_parse("--verify", "--quiet", f"{name}^{{commit}}"))
        except git.GitCommandError:
            continue
    raise InputError(f"{without_credentials(url)} has no revision {rev!r}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of one cached copy: a second builder waits, and a killed one leaves no lock behind."""
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
