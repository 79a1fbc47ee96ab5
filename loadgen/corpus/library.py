"""The files of a corpus as clean text, in an order that depends on seed and path only."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loadgen.corpus.exact import Piece
from loadgen.corpus.recipe import Recipe, is_url
from loadgen.corpus.rules import Account, Findings, Rules, Taken
from loadgen.corpus.source import Entry, Source
from loadgen.corpus.text import SpecialStrings, decode
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

_CACHE_BYTES = 24 << 20


def open_source(recipe: Recipe, *, history: int = 0) -> Source:
    """Open the recipe's source. `history`: how many commits before `rev` later turns may want."""
    url, rev = recipe.source.url, recipe.source.rev
    if url == "stdlib":
        from loadgen.corpus.folder import stdlib

        if rev is not None:
            raise InputError(f"--rev {rev}: the standard library is not a git repository; name one")
        return stdlib()
    if is_url(url):
        from loadgen.corpus.clone import clone

        return clone(url, rev, history=history)
    path = Path(url).expanduser()
    if not path.is_dir():
        raise InputError(f"{url} does not exist" if not path.exists() else f"{url} is not a folder")
    from loadgen.corpus.git import GitSource, is_repository

    if is_repository(path):
        return GitSource(path, rev, url=url)
    if rev is not None:
        raise InputError(f"{url} is not a git repository, so it has no revision {rev!r}")
    from loadgen.corpus.folder import FolderSource

    return FolderSource(path, url=url)


class Library:
    """Files that pass the recipe's rules, as text. May be used from several threads."""

    def __init__(self, source: Source, recipe: Recipe, tokenizer: Tokenizer, *, framed: bool = True) -> None:
        """`framed`: pieces name their file and end with a mark, as in a document; else they are its text alone."""
        self.source = source
        self._framed = framed
        self._read_bytes = recipe.files.read_bytes
        ignores: Sequence[tuple[str, bytes]] = getattr(source, "ignores", tuple)()
        self._rules = Rules(recipe.files, attributes=source.attributes(), ignores=ignores)
        self._special = SpecialStrings(tokenizer)
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._cached_bytes = 0
        self.account = Account(source.skipped)
        self.account.offered = len(source.entries)
        self._broken_elsewhere = 0
        self.entries: list[Entry] = []
        for entry in source.entries:
            reason = self._rules.by_name(entry)
            if reason is None:
                self.entries.append(entry)
            else:
                self.account.left_out[entry.path] = (reason, entry.size)

    def release(self) -> None:
        """Close what two processes cannot share, before a fork."""
        self.source.release()

    def news(self) -> Findings:
        """What was found in files since this was asked last."""
        return self.account.news()

    def add(self, news: Findings) -> None:
        """Take over what another process found."""
        self.account.add(news)

    def ordered(self, *key: object, of: Iterable[Entry] | None = None) -> list[Entry]:
        """Files in an order of their own for every `key`: by hash, so a file more does not shuffle the others."""
        salt = "\0".join(map(str, key)).encode()

        def rank(entry: Entry) -> bytes:
            return hashlib.blake2b(
                entry.path.encode("utf-8", "backslashreplace"), key=salt[:64], digest_size=12
            ).digest()

        return sorted(self.entries if of is None else of, key=rank)

    def shown_bytes(self) -> int:
        """Upper bound of the text that all files together can give, in bytes."""
        return sum(min(entry.size, self._read_bytes) for entry in self.entries)

    def pieces(self, entries: Iterable[Entry]) -> Iterator[Piece]:
        """Files as an agent reads them, one piece each; those that the rules drop when read are passed over."""
        for entry in entries:
            text = self.text(entry)
            if text is not None:
                shown = as_read(text, self._read_bytes)
                yield Piece(entry.path, framed(entry.path, shown) if self._framed else shown)

    def text(self, entry: Entry) -> str | None:
        """The whole file as text that ends in a newline; None when a rule on content drops it."""
        path = entry.path
        with self._lock:
            if path in self._cache:
                self._cache.move_to_end(path)
                return self._cache[path]
            if path in self.account.left_out:
                return None
        data = self.source.read(entry)
        text, reason, note, broken = self._clean(path, data)
        with self._lock:
            if text is None:
                self.account.left_out[path] = (reason, entry.size)
                return None
            self.account.taken.setdefault(path, Taken(entry.size, note, broken))
            self._cache[path] = text
            self._cached_bytes += len(text)
            while self._cached_bytes > _CACHE_BYTES and len(self._cache) > 1:
                self._cached_bytes -= len(self._cache.popitem(last=False)[1])
        return text

    def safe(self, text: str) -> str:
        """`text` that is no file, with LF line ends and without strings that are special tokens."""
        text, broken = self._special.broken(text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))
        with self._lock:
            self._broken_elsewhere += broken
        return text

    @property
    def broken_specials(self) -> int:
        """Strings that are special tokens and were broken, in files and elsewhere."""
        return self._broken_elsewhere + sum(file.broken for file in self.account.taken.values())

    def _clean(self, path: str, data: bytes | None) -> tuple[str | None, str, str | None, int]:
        if data is None:
            return None, "object missing", None, 0
        reason = self._rules.by_content(path, data)
        if reason is not None:
            return None, reason, None, 0
        decoded = decode(data)
        if decoded is None:
            return None, "binary (by content)", None, 0
        text, note = decoded
        text = text.rstrip()
        if not text:
            return None, "empty", None, 0
        text, broken = self._special.broken(text + "\n")
        return text, "", note, broken


def as_read(text: str, limit: int) -> str:
    """A file as an agent's read tool shows it: whole lines up to `limit` characters, and how many more there are."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit) + 1
    if not end:
        return f"{text[:limit]}\n(1 line cut)\n"
    return f"{text[:end]}({text.count(chr(10), end)} more lines)\n"


def framed(path: str, text: str, what: str = "file") -> str:
    """`text` between marks that name it: a piece by the rule of `exact`, whatever the file begins with."""
    name = path.replace("\n", " ").replace('"', "'")
    return f'<{what} path="{name}">\n{text}</{what}>\n'
