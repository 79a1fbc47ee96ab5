"""Import foreign logs: detect the format, read, write a trace, tell what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import InputError
from loadgen.outfile import refuse_input
from loadgen.trace.formats import registry
from loadgen.trace.formats.base import Format, Report
from loadgen.trace.formats.build import build
from loadgen.trace.model import Header, Source


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made: counts of sessions, sub_agents, turns and retries, and the report of what it left out."""

    path: Path
    format: Format
    files: int
    counts: Counter[str]
    report: Report


def import_trace(
    paths: Sequence[Path],
    out: Path,
    *,
    format_name: str | None = None,
    name: str | None = None,
    licence: str | None = None,
) -> Imported:
    """Read files and folders of one foreign format into a trace at `out`.

    `licence`: of the data, for the header (known for public data sets with a format of their own). Without `format_name` it is detected by the files' contents; files of no known format are counted. Raises
    InputError when a path is missing, the files are of several formats or of none, or nothing could be imported.
    """
    files = registry.files_of(paths)
    report = Report()
    refuse_input(out, files)
    if format_name is not None:
        chosen = registry.by_name(format_name)
    else:
        found = registry.detect(files, report)
        for path in found.pop(None, []):
            if registry.is_trace(path):
                raise InputError(f"{path} is a trace of loadgen already; it needs no import")
            report.skip("file of no known format", str(path))
        chosen, files = _only(found, paths)
    header = Header(
        version=1,
        name=name or paths[0].name.split(".")[0] or "import",
        source=Source(format=chosen.name, tool="loadgen trace import", licence=licence or chosen.licence),
        fidelity=chosen.fidelity,
        block_size=chosen.block_size,
        made={"files": len(files)},
    )
    counts = build(chosen.read(files, report), out, header, report)
    return Imported(out, chosen, len(files), counts, report)


def _only(found: dict[Format | None, list[Path]], paths: Sequence[Path]) -> tuple[Format, list[Path]]:
    choices = {form: files for form, files in found.items() if form is not None}
    if not choices:
        raise InputError(
            f"no file of a known format in {', '.join(map(str, paths))}; name it with --format "
            f"({', '.join(form.name for form in registry.FORMATS)})"
        )
    if len(choices) > 1:
        listed = ", ".join(f"{form.name} ({len(files)} files, {files[0]})" for form, files in choices.items())
        raise InputError(
            f"the paths hold files of several formats: {listed}; import one at a time, or name it with --format"
        )
    return next(iter(choices.items()))
