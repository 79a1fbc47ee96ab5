"""Aider 0.86: commands, headings and quotations of the model, reports over several lines, reflections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from tests.trace.test_formats import prompts, turns

# lines that aider ends with two spaces end with `~` here
HISTORY = """
# aider chat started at 2026-06-01 10:00:00

> Aider v0.86.2~
> Git repo: .git with 2 files~

#### /ask what is it?~

#### what is it?~

It is a tool.

> Tokens: 84 sent, 1.2k cache hit, 6 received.~

#### /add hello.txt~
> Added hello.txt to the chat~

#### change it~
#### please~

I change it.

#### A heading of the model

> a quotation

> Tokens: 2.4k sent, 31 received. Cost: $0.01 message, $0.02 session.~
> The LLM did not conform to the edit format.~
> # 1 block failed to match!

## in hello.txt, which is
not there~

Sorry.

> Tokens: 2.5k sent, 10 received.~
> Applied edit to hello.txt~
> Commit c9cdb6a I change it.

hello.txt~

#### /clear~
> All chat history cleared.~

#### and now~

Nothing.

> Tokens: 2.4k sent, 6 received.~

#### stopped~

Half an ans
""".replace("~\n", "  \n")


def imported(tmp_path: Path, text: str) -> tuple[list[Any], list[list[dict[str, Any]]], dict[str, Any]]:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(text, encoding="utf-8")
    done = import_trace([path], tmp_path / "out.jsonl")
    assert done.format.name == "aider"
    with open_trace(done.path) as trace:
        return turns(trace), prompts(trace), trace.header.made or {}


def test_each_request_of_a_chat_is_a_call_with_its_own_question(tmp_path: Path) -> None:
    found, asked, made = imported(tmp_path, HISTORY)
    assert [prompt[-1]["content"] for prompt in asked] == [
        "what is it?",
        "change it\nplease",
        "# 1 block failed to match!\n\n## in hello.txt, which is\nnot there",
        "and now",
        "stopped",
    ]
    assert [turn.answer["content"] for turn in found] == [
        "It is a tool.",
        "I change it.\n\n#### A heading of the model\n\n> a quotation",
        "Sorry.",
        "Nothing.",
        "Half an ans",
    ]
    assert [turn.input_tokens for turn in found] == [84, 2400, 2500, 2400, None]
    assert found[0].cached_tokens == 84  # at most the prompt
    assert [len(prompt) for prompt in asked] == [1, 3, 5, 1, 3]  # /clear begins anew
    assert made["notes"]["command of aider, itself not sent"] == 3
    assert made["notes"]["message of aider's own, taken from what it printed"] == 1


def test_a_file_without_the_trailing_spaces_is_read_by_its_prefixes(tmp_path: Path) -> None:
    plain = "# aider chat started at 2026-06-01 10:00:00\n\n#### one\n\nyes\n\n> Tokens: 12k sent, 3 received.\n\n#### two\n\nno\n"
    found, asked, _ = imported(tmp_path, plain)
    assert [prompt[-1]["content"] for prompt in asked] == ["one", "two"]
    assert [turn.answer["content"] for turn in found] == ["yes", "no"]
    assert [turn.output_tokens for turn in found] == [3, None]
