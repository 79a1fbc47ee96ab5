"""Files of a git repository at one commit, through GitPython's persistent `git cat-file`.

The only module that imports GitPython, which raises where no git is installed.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen.corpus.source import Entry, without_credentials
from loadgen.errors import InputError

if TYPE_CHECKING:
    import git

# Reading never goes to a network: an object that a partial clone lacks is counted as missing, and no remote helper starts.
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


_MAX_CHANGE = 2_000_000  # bytes


def gitpython() -> Any:
    """The `git` module. Raises InputError when no git program is installed."""
    try:
        import git
    except ImportError:
        raise InputError(
            "git is not installed, or not on PATH; install it, or use a folder or `stdlib` as the corpus"
        ) from None
    return git


def sentence(error: Any) -> str:
    """What git said, in one line: the first of its standard error that is no warning, without credentials."""
    text = str(getattr(error, "stderr", "") or error).strip().strip("'").replace("stderr: '", "")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("warning:")]
    words = (lines[0] if lines else type(error).__name__).removeprefix("fatal: ")
    return " ".join(without_credentials(word) for word in words.split())


def is_repository(path: Path) -> bool:
    """Whether `path` itself is a work tree's top, a linked worktree, or a bare repository."""
    return (path / ".git").exists() or _is_bare(path)


def _is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir()


class GitSource:
    """Regular files of `path`'s repository at `rev` (default HEAD)."""

    def __init__(self, path: Path, rev: str | None = None, *, url: str | None = None) -> None:
        module = gitpython()
        self.url = without_credentials(url or str(path))
        try:
            self._repo: git.Repo = module.Repo(path)
        except (module.InvalidGitRepositoryError, module.NoSuchPathError):
            raise InputError(f"{path} is not a git repository") from None
        self._repo.git.update_environment(**_OFFLINE)
        if _is_bare(path):  # a copy may lack the `config` file by which git and GitPython know it for one
            self._repo.git.update_environment(GIT_DIR=str(path.resolve()))
        self._git_error = module.GitCommandError
        self._lock = threading.Lock()
        self.skipped: Counter[str] = Counter()
        self.identity = self._resolve(rev or "HEAD")
        self.commit: str | None = self.identity
        self.entries: Sequence[Entry] = self._list()

    def _resolve(self, rev: str) -> str:
        if rev.startswith("-"):
            raise InputError(f"{rev!r} is not a revision")
        try:
            found: str = self._repo.git.rev_parse("--verify", "--quiet", f"{rev}^{{commit}}")
        except self._git_error as error:
            said = sentence(error)
            if "dubious ownership" in said or "safe.directory" in said:
                raise InputError(
                    f"git refuses {self.url}, which belongs to another user; git config --global --add safe.directory PATH allows it"
                ) from None
            what = "has no commit yet" if rev == "HEAD" else f"has no revision {rev!r}"
            raise InputError(f"{self.url} {what}") from None
        return found

    def _list(self) -> list[Entry]:
        found = []
        for mode, kind, key, size, name in self._tree():
            if kind == b"commit":
                self.skipped["submodule"] += 1
            elif mode == b"120000":
                self.skipped["symbolic link"] += 1
            elif size is None:
                self.skipped["object missing"] += 1
            else:
                found.append(Entry(name.decode("utf-8", "backslashreplace"), size, key.decode()))
        return sorted(found, key=lambda entry: entry.path)

    def _tree(self) -> Iterator[tuple[bytes, bytes, bytes, int | None, bytes]]:
        """(mode, kind, key, size, path) of everything in the tree; size is None for what is missing."""
        listing = ("-r", "-z", "--full-tree", self.commit)
        raw = {"stdout_as_string": False, "strip_newline_in_stdout": False}
        missing: set[str] = set()
        try:
            lines: bytes = self._repo.git.ls_tree("-l", *listing, **raw)
        except self._git_error:  # git gives up at the first object that a partial clone lacks
            lines = self._repo.git.ls_tree(*listing, **raw)
            objects: str = self._repo.git.rev_list(
                "--objects", "--missing=print", "--max-count=1", self.commit
            )
            missing = {line[1:] for line in objects.splitlines() if line.startswith("?")}
        for line in lines.split(b"\0")[:-1]:
            meta, _, name = line.partition(b"\t")
            mode, kind, key, *sizes = meta.split()
            size = None
            if kind == b"blob":
                # In a damaged or cut repository git prints BAD for the size of what is not there.
                size = _number(sizes[0]) if sizes else self._size(key.decode(), missing)
            yield mode, kind, key, size, name

    def _size(self, key: str, missing: set[str]) -> int | None:
        if key in missing:
            return None
        size: int = self._repo.git.get_object_header(key)[2]
        return size

    def read(self, entry: Entry) -> bytes | None:
        return self.read_object(entry.key)

    def read_object(self, key: str) -> bytes | None:
        """Bytes of the object called `key` (hex); None when it is missing."""
        with self._lock:  # one cat-file process answers one question after another
            try:
                data: bytes = self._repo.git.get_object_data(key)[3]
            except (
                ValueError,
                OSError,
            ):  # cat-file ends when an object is missing: the next question starts another
                self._repo.git.clear_cache()
                return None
        return data

    def attributes(self) -> Sequence[tuple[str, bytes]]:
        found = []
        for entry in self.entries:
            folder, _, last = entry.path.rpartition("/")
            if last == ".gitattributes":
                found.append((folder, self.read(entry) or b""))
        return sorted(found, key=lambda pair: (pair[0].count("/") if pair[0] else -1, pair[0]))

    def commits(self, limit: int) -> list[str]:
        """Up to `limit` commits before and with this one, without merges and, in a shallow clone, without its edge."""
        found: str = self._repo.git.rev_list(
            "--no-merges", "--min-parents=1", f"--max-count={limit}", self.commit
        )
        edge = Path(self._repo.common_dir) / "shallow"
        cut = set(edge.read_text().split()) if edge.is_file() else set()
        return [commit for commit in found.split() if commit not in cut]

    def change(self, commit: str) -> str | None:
        """Message and patch of `commit`; names and addresses of people stay out. None when objects are missing or it is huge."""
        # A repository's own configuration may name programs for diffs: none is run.
        safe = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", "--no-notes")
        try:
            data: bytes = self._repo.git.show(
                *safe,
                "--format=%s%n%n%b",
                "-p",
                "--stat",
                commit,
                stdout_as_string=False,
                max_chunk_size=1 << 20,
            )
        except self._git_error:
            self.skipped["commit with missing objects"] += 1
            return None
        if b"\0" in data or len(data) > _MAX_CHANGE:
            return None
        return re.sub(r"(?m)^[A-Z][\w-]+-[Bb]y: .*\n", "", data.decode("utf-8", "replace"))

    def release(self) -> None:
        with self._lock:
            self._repo.git.clear_cache()

    def close(self) -> None:
        self._repo.close()


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() else None
