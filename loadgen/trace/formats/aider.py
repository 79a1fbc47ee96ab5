"""Aider's chat history, a markdown file, as 0.86 writes it.

What aider itself writes ends in two spaces: `#### ` is the user, `> ` its own output, which may run over several lines
of which only the last one ends so. All else is the model; a line with token counts ends an answer. After it come
aider's reports, and, when it asked again by itself (an edit that failed, a linter), another answer with its counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.rows import seconds, text_lines
from loadgen.trace.model import Message

_START = "# aider chat started at "
_TOKENS = re.compile(r"^> Tokens: ([\d.,]+)(k|M)? sent,(.*?) ?([\d.,]+)(k|M)? received")
_CACHED = re.compile(r"([\d.,]+)(k|M)? cache hit")
_UNIT = {None: 1, "k": 1_000, "M": 1_000_000}
_ARGUMENTS = ("/ask ", "/code ", "/architect ", "/context ", "/help ")
"""Commands with a question; 0.86 repeats the question as a message of its own."""


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        chat: _Chat | None = None
        lines: list[str] = []
        for number, raw in text_lines(path, report):
            line = raw.decode("utf-8", "replace").rstrip("\r\n").replace("\x00", "")
            if line.startswith(_START):
                if chat is not None:
                    yield [chat.read(lines)]
                start = seconds(line.removeprefix(_START).strip())
                chat, lines = _Chat(f"{path.stem.strip('.')}:{number}", start, report), []
            elif chat is None:
                if line.strip():
                    report.skip("line before the first chat", f"{path}:{number}")
            else:
                lines.append(line)
        if chat is not None:
            yield [chat.read(lines)]


class _Chat:
    def __init__(self, name: str, start: float | None, report: Report) -> None:
        self.agent = Agent(id=name, calls=[])
        self.start = start
        self.report = report
        self.prompt: list[Message] = []
        self.question = ""  # of a command, in case no message repeats it
        self.text: list[str] = []  # since the last user message or token counts
        self.counted = False  # token counts came since the last user message

    def read(self, lines: list[str]) -> Agent:
        # files that lost their trailing spaces (an editor, another version) are read by the prefixes alone
        self.strict = any(line.startswith("#### ") and line.endswith("  ") for line in lines)
        user: list[str] = []
        for line in lines:
            if line.startswith("#### ") and self._is_own(line):
                if not user:
                    self._answer(None)
                user.append(line[5:].removesuffix("  "))
                continue
            if user:
                self._user("\n".join(user))
                user = []
            if found := _TOKENS.match(line):
                self._answer(found)
            else:
                self.text.append(line)
        if user:
            self._user("\n".join(user))
        self._answer(None)
        return self.agent

    def _is_own(self, line: str) -> bool:
        return line.endswith("  ") or not self.strict

    def _user(self, text: str) -> None:
        self.counted = False
        if not text.startswith(("/", "!")):
            self.question = ""
            self.prompt.append({"role": "user", "content": text})
            return
        self.report.note("command of aider, itself not sent", self.agent.id)
        if text.split(maxsplit=1)[0] in ("/clear", "/reset"):
            self.prompt = []
        self.question = text.partition(" ")[2] if text.startswith(_ARGUMENTS) else ""

    def _answer(self, counts: re.Match[str] | None) -> None:
        """What was written since the last message or counts: an answer, aider's reports, or both."""
        lines, self.text = self.text, []
        again = ""
        if self.counted:
            if counts is None:
                return  # reports alone: commits, edits, questions of aider
            again, lines = self._reports(lines)
        text = "\n".join(line for line in lines if not (line.startswith("> ") and self._is_own(line))).strip()
        self.counted = self.counted or counts is not None
        if not text and counts is None:
            return
        if again:
            self.report.note("message of aider's own, taken from what it printed", self.agent.id)
            self.prompt.append({"role": "user", "content": again})
        if self.question:
            self.prompt.append({"role": "user", "content": self.question})
            self.question = ""
        if not self.prompt or self.prompt[-1]["role"] != "user":
            self.report.skip("answer without a question", self.agent.id)
            return
        answer: Message = {"role": "assistant", "content": text}
        cached = _CACHED.search(counts[3]) if counts else None
        self.agent.calls.append(
            Call(
                prompt=list(self.prompt),
                answer=answer,
                start_s=self.start if not self.agent.calls else None,
                gap_kind="tool" if again else "human",
                input_tokens=_rounded(counts[1], counts[2]) if counts else None,
                output_tokens=_rounded(counts[4], counts[5]) if counts else None,
                cached_tokens=_rounded(cached[1], cached[2]) if cached else None,
            )
        )
        self.prompt.append(answer)

    def _reports(self, lines: list[str]) -> tuple[str, list[str]]:
        """The longest of the reports at the beginning, which is what aider sent, and the lines behind them."""
        longest, place = "", 0
        while place < len(lines):
            if not lines[place].strip():
                place += 1
                continue
            if not lines[place].startswith("> "):
                break
            end = place
            while self.strict and end + 1 < len(lines) and not lines[end].endswith("  "):
                end += 1
            report = "\n".join(lines[place : end + 1])[2:].rstrip(" ")
            longest = report if len(report) > len(longest) else longest
            place = end + 1
        return longest, lines[place:]


def _rounded(digits: str, unit: str | None) -> int | None:
    try:
        return round(float(digits.replace(",", "")) * _UNIT[unit])
    except ValueError:
        return None


FORMAT = Format(
    name="aider",
    title="Aider chat history",
    fidelity="messages",
    lost="system prompt, files and command output in the prompt, commit messages, times; token counts are rounded, "
    "and aider's own estimate for streams",
    detect=lambda head: _START.encode() in head.data,
    read=_read,
)
