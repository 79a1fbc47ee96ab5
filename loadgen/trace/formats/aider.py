"""Aider's chat history, a markdown file: the only usage in it is rounded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.rows import seconds, text_lines
from loadgen.trace.model import Message

_START = "# aider chat started at "
_TOKENS = re.compile(r"^> Tokens: ([\d.,]+)(k|M)? sent,(?:.*?) ?([\d.,]+)(k|M)? received")
_UNIT = {None: 1, "k": 1_000, "M": 1_000_000}


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """`#### ` is the user, `> ` a tool, plain text the model; a line with tokens ends a call."""
    for path in files:
        session: _Chat | None = None
        for number, raw in text_lines(path, report):
            line = raw.decode("utf-8", "replace").rstrip("\n").replace("\x00", "")
            if line.startswith(_START):
                if session is not None:
                    yield [session.close()]
                session = _Chat(
                    f"{path.stem.strip('.')}:{number}", seconds(line.removeprefix(_START).strip()), report
                )
            elif session is None:
                if line.strip():
                    report.skip("line before the first chat", f"{path}:{number}")
            else:
                session.line(line)
        if session is not None:
            yield [session.close()]


class _Chat:
    def __init__(self, name: str, start: float | None, report: Report) -> None:
        self.agent = Agent(id=name, calls=[])
        self.start = start
        self.report = report
        self.prompt: list[Message] = []
        self.user: list[str] = []
        self.text: list[str] = []

    def line(self, line: str) -> None:
        if line.startswith("#### "):
            self._flush(None, None)
            self.user.append(line[5:])
        elif found := _TOKENS.match(line):
            self._flush(_rounded(found[1], found[2]), _rounded(found[3], found[4]))
        elif line.startswith("> "):
            pass  # what aider itself says: no model sees it
        elif self.user or self.text:
            if self.user and line.strip():
                self.prompt.append({"role": "user", "content": "\n".join(self.user)})
                self.user = []
            self.text.append(line)

    def _flush(self, sent: int | None, received: int | None) -> None:
        text = "\n".join(self.text).strip()
        if not text:
            self.text = []
            return
        if self.user:
            self.prompt.append({"role": "user", "content": "\n".join(self.user)})
            self.user = []
        if not self.prompt:
            self.report.skip("answer without a question", self.agent.id)
        else:
            answer: Message = {"role": "assistant", "content": text}
            start = self.start if not self.agent.calls else None
            self.agent.calls.append(
                Call(
                    prompt=list(self.prompt),
                    answer=answer,
                    start_s=start,
                    input_tokens=sent,
                    output_tokens=received,
                )
            )
            self.prompt.append(answer)
        self.text = []

    def close(self) -> Agent:
        self._flush(None, None)
        return self.agent


def _rounded(digits: str, unit: str | None) -> int | None:
    try:
        return round(float(digits.replace(",", "")) * _UNIT[unit])
    except ValueError:
        return None


FORMAT = Format(
    name="aider",
    title="Aider chat history",
    fidelity="messages",
    lost="system prompt, files in the prompt, times; token counts are rounded",
    detect=lambda head: _START.encode() in head.data,
    read=_read,
)
