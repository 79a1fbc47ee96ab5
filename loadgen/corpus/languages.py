"""Languages by file extension, for the recipe key `files.languages`."""

from __future__ import annotations

EXTENSIONS: dict[str, tuple[str, ...]] = {
    "c": ("c", "h"),
    "cpp": ("cc", "cpp", "cxx", "hh", "hpp", "hxx", "cu", "cuh"),
    "csharp": ("cs",),
    "css": ("css", "scss", "less"),
    "elixir": ("ex", "exs"),
    "go": ("go",),
    "haskell": ("hs",),
    "html": ("html", "htm", "vue", "svelte"),
    "java": ("java",),
    "javascript": ("js", "mjs", "cjs", "jsx"),
    "json": ("json", "jsonl"),
    "kotlin": ("kt", "kts"),
    "lua": ("lua",),
    "markdown": ("md", "mdx", "rst", "adoc"),
    "perl": ("pl", "pm"),
    "php": ("php",),
    "protobuf": ("proto",),
    "python": ("py", "pyi"),
    "ruby": ("rb",),
    "rust": ("rs",),
    "scala": ("scala",),
    "shell": ("sh", "bash", "zsh"),
    "sql": ("sql",),
    "swift": ("swift",),
    "tcl": ("tcl",),
    "toml": ("toml",),
    "typescript": ("ts", "tsx", "mts"),
    "yaml": ("yaml", "yml"),
    "zig": ("zig",),
}
_BY_EXTENSION = {
    extension: language for language, extensions in EXTENSIONS.items() for extension in extensions
}


def language_of(path: str) -> str | None:
    """The language of a file by its extension; None when the table does not know it."""
    return _BY_EXTENSION.get(path.rpartition(".")[2].lower())
