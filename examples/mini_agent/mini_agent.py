"""A coding agent in one file: four tools on a git repository, one loop, the openai SDK.

    python mini_agent.py --repo . "Make the failing test pass"
    loadgen record --upstream http://127.0.0.1:8000 -o my.jsonl -- python mini_agent.py --repo . "Explain how tests are run"

It is here to be recorded and to be read, not to be good. It talks to OPENAI_BASE_URL (or --base-url) and works on a
copy of the repository, so that nothing of yours changes; --in-place works on the repository itself. A model that
cannot call tools is shown a file of the repository in place of each call that it did not make (--nudge N), so that a
recording on a fresh machine has more than one turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai

SYSTEM = (
    "You are a coding agent in a git repository. Use the tools to read, search, edit and test. Make one small step at a"
    " time, look at what it did, and answer in plain text, without a tool call, when the task is done."
)
LONGEST_RESULT = 20_000  # characters of a tool's result; the rest is cut
TEST_TIMEOUT_S = 300


class Tools:
    """What the model may do. Every path stays inside the repository."""

    def __init__(self, repo: Path, test_command: str) -> None:
        self.repo = repo.resolve()
        self._test_command = test_command

    def read(self, path: str, start: int = 1, lines: int = 400) -> str:
        """Read lines of a file, from line `start` (1 is the first)."""
        text = self._inside(path).read_text(errors="replace").splitlines()
        return "\n".join(text[max(start, 1) - 1 :][: max(lines, 1)])

    def grep(self, pattern: str, path: str = ".") -> str:
        """Search tracked files for a regular expression; lines come with file and number."""
        self._inside(path)
        return self._run("git", "grep", "-n", "-I", "-E", "-e", pattern, "--", path)

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace the only occurrence of `old` in a file by `new`; an empty `old` writes a new file."""
        target = self._inside(path)
        text = target.read_text() if target.exists() else ""
        if old and text.count(old) != 1:
            return f"`old` occurs {text.count(old)} times in {path}; it must occur once"
        if not old and text:
            return f"{path} exists; give the text to replace"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(old, new) if old else new)
        return "done"

    def test(self) -> str:
        """Run the repository's tests."""
        return self._run(*shlex.split(self._test_command))

    def files(self) -> list[str]:
        return self._run(
            "git", "ls-files", "*.py", "*.md", "*.c", "*.h", "*.rs", "*.go", "*.ts", "*.js"
        ).splitlines()

    def call(self, name: str, arguments: str) -> str:
        """Run one tool call of the model; every mistake of the model is an answer to it."""
        tools: dict[str, Callable[..., str]] = {
            "read": self.read,
            "grep": self.grep,
            "edit": self.edit,
            "test": self.test,
        }
        tool = tools.get(name)
        if tool is None:
            return f"there is no tool {name!r}"
        try:
            return tool(**json.loads(arguments or "{}"))[:LONGEST_RESULT] or "(nothing)"
        except (OSError, ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"

    def _inside(self, path: str) -> Path:
        target = (self.repo / path).resolve()
        if not target.is_relative_to(self.repo):
            raise ValueError(f"{path} is outside the repository")
        return target

    def _run(self, *command: str) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self.repo,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TEST_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {TEST_TIMEOUT_S} s"
        return done.stdout + done.stderr


def _schema(
    name: str, text: str, required: dict[str, str], optional: dict[str, str] | None = None
) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in (required | (optional or {})).items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}


SCHEMAS: list[Any] = [
    _schema("read", Tools.read.__doc__ or "", {"path": "string"}, {"start": "integer", "lines": "integer"}),
    _schema("grep", Tools.grep.__doc__ or "", {"pattern": "string"}, {"path": "string"}),
    _schema("edit", Tools.edit.__doc__ or "", {"path": "string", "old": "string", "new": "string"}),
    _schema("test", Tools.test.__doc__ or "", {}),
]


def ask(client: openai.OpenAI, model: str, messages: list[Any]) -> dict[str, Any]:
    """One streamed turn; the answer as a message."""
    text = ""
    calls: dict[int, dict[str, Any]] = {}
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=SCHEMAS,
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=2000,
    )
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(
                    part.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                call["id"] = part.id or call["id"]
                if part.function:
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls.values())
    return message


def nudges(tools: Tools, limit: int) -> Iterator[str]:
    """User messages for a model that made no call: one file after the other."""
    for path in tools.files()[:limit]:
        yield f"You made no tool call. Here is {path}; go on with the task.\n\n{tools.read(path)}"


def run(client: openai.OpenAI, model: str, tools: Tools, task: str, *, steps: int, nudge: int) -> str:
    """The loop: ask, do what was asked for, tell the result; the model's last words."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    hints = nudges(tools, nudge)
    for step in range(1, steps + 1):
        answer = ask(client, model, messages)
        messages.append(answer)
        for call in answer.get("tool_calls", []):
            function = call["function"]
            print(f"{step:>3} {function['name']} {function['arguments'][:100]}", file=sys.stderr)
            result = tools.call(function["name"], function["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if "tool_calls" not in answer:
            hint = next(hints, None)
            if hint is None:
                return str(answer["content"])
            print(f"{step:>3} (no call) {hint.splitlines()[0][:100]}", file=sys.stderr)
            messages.append({"role": "user", "content": hint})
    return f"stopped after {steps} steps"


def main() -> int:
    parser = argparse.ArgumentParser(description="A small coding agent, to be recorded and to be read.")
    parser.add_argument("task")
    parser.add_argument(
        "--repo", type=Path, default=Path("."), help="git repository to work on (default: here)"
    )
    parser.add_argument(
        "--in-place", action="store_true", help="work on the repository itself, not on a copy"
    )
    parser.add_argument("--base-url", help="endpoint with /v1 (default: OPENAI_BASE_URL)")
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument("--steps", type=int, default=40, help="most turns (default: 40)")
    parser.add_argument(
        "--nudge", type=int, default=0, metavar="N", help="show up to N files to a model that makes no calls"
    )
    parser.add_argument("--test-command", default="python -m pytest -q", help="default: python -m pytest -q")
    args = parser.parse_args()
    if subprocess.run(["git", "-C", args.repo, "rev-parse", "HEAD"], capture_output=True).returncode:
        parser.error(f"{args.repo} is no git repository with a commit")
    base_url = args.base_url or os.environ.get("OPENAI_BASE_URL")
    if not base_url:
        parser.error("say where the model is: --base-url URL, or OPENAI_BASE_URL")
    client = openai.OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    with tempfile.TemporaryDirectory() as folder:
        repo = args.repo
        if not args.in_place:
            repo = Path(folder) / re.sub(r"\W+", "-", args.repo.resolve().name)
            subprocess.run(["git", "clone", "-q", "--no-hardlinks", args.repo, repo], check=True)
        try:
            model = args.model or next(iter(client.models.list())).id
            tools = Tools(repo, args.test_command)
            print(run(client, model, tools, args.task, steps=args.steps, nudge=args.nudge))
        except openai.OpenAIError as error:
            print(f"mini_agent: {error}", file=sys.stderr)
            return 1
        print(
            subprocess.run(["git", "diff", "--stat"], cwd=repo, capture_output=True, text=True).stdout, end=""
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
