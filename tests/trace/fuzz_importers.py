"""Fuzz target (atheris) over every importer and the reader: no exception but InputError.

    python tests/trace/fuzz_importers.py -max_total_time=600 [CORPUS_FOLDER]

The first byte picks the format, the rest is a file. The fixtures of the tests are the seeds. Not collected by pytest.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["loadgen.trace"]):
    from loadgen.errors import InputError
    from loadgen.trace.formats import registry
    from loadgen.trace.importing import import_trace
    from loadgen.trace.reader import open_trace

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.trace import fixtures

FORMATS = [form.name for form in registry.FORMATS]
NAMES = {
    "opencode": "opencode.db",
    "cline-task": "api_conversation_history.json",
    "azure": "a.csv",
    "burstgpt": "b.csv",
}
SUFFIX = {"otel": ".json", "cline": ".json", "gemini": ".json", "openhands-completions": ".json"}


def one_input(data: bytes) -> None:
    if not data:
        return
    choice = data[0] % (len(FORMATS) + 1)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(InputError):
        if choice == len(FORMATS):
            path = Path(folder, "t.jsonl")
            path.write_bytes(data[1:])
            with open_trace(path) as trace:
                for session in trace.sessions:
                    trace.turns(session.id)
            return
        name = FORMATS[choice]
        path = Path(folder, NAMES.get(name, f"f{SUFFIX.get(name, '.jsonl')}"))
        path.write_bytes(data[1:])
        import_trace([path], Path(folder, "out", "o.jsonl"), format_name=name)


def seeds(folder: Path) -> None:
    for number, name in enumerate(FORMATS):
        for at, content in enumerate(fixtures.FILES[name][0].values()):
            (folder / f"{name}-{at}").write_bytes(bytes([number]) + content)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        seeds(Path(made))
        atheris.Setup([*sys.argv, made], one_input)
        atheris.Fuzz()
