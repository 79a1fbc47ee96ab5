"""How texts become prompts: tokenizer, what the chat template adds, and whether it moves earlier tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient
from loadgen.errors import LoadgenError
from loadgen.tokens.template import common_prefix

_LOCAL = ("tekken", "tiktoken:o200k_base")
# Code, prose, numbers, other scripts and runs of blanks: what tokenizers differ in.
SAMPLE = 'class A:\n\tdef f(self, x):  return x * 1234567 + 3.14159\n\n\nÉté à Zürich, 日本語, Привет …   {"k": [1, 22, 333]}\n'
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read one file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def examine(patient: Patient) -> Iterator[Finding]:
    if not patient.renderer.available:
        yield Finding(
            check="tokenizer",
            status=Status.WARN,
            seen="no /tokenize",
            meaning="Prompt lengths are those of a local tokenizer, and what the template adds is unknown until the first answer.",
            remedy="Name the model's tokenizer with --tokenizer and watch the drift that the report prints.",
        )
        return
    yield from _guarded("tokenizer", _tokenizer(patient))
    yield from _guarded("template", _overhead(patient))
    yield from _guarded("template moves", _placement(patient))


def _guarded(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """An endpoint that refuses one kind of prompt (no tools, no system role) ends that check alone."""
    try:
        yield from findings
    except LoadgenError as error:
        yield Finding(
            check=check,
            status=Status.WARN,
            seen=str(error),
            meaning="The endpoint does not render such a prompt; traces that hold one will fail.",
        )


def _tokenizer(patient: Patient) -> Iterator[Finding]:
    from loadgen import tokens

    theirs = patient.renderer.text(SAMPLE)
    counts = {}
    for name in _LOCAL:
        try:
            tokenizer = tokens.get(name)
        except LoadgenError:
            continue
        ours = tokenizer.encode(SAMPLE)
        counts[name] = len(ours)
        if ours == theirs:
            yield Finding(
                check="tokenizer",
                status=Status.OK,
                seen=f"{name} gives the endpoint's own ids",
                meaning="Contexts built with it have exactly the length that the server counts.",
                data={"tokenizer": name},
            )
            return
    known = ", ".join(f"{name} {count}" for name, count in counts.items())
    yield Finding(
        check="tokenizer",
        status=Status.WARN,
        seen=f"none of ours: {len(theirs)} tokens there for a sample, {known}",
        meaning="Contexts built with another tokenizer have another length on this server.",
        remedy="Name the model's own file: --tokenizer hf:PATH/tokenizer.json, or let the endpoint count (--tokenizer server).",
        data={"endpoint": len(theirs), "local": counts},
    )


def _overhead(patient: Patient) -> Iterator[Finding]:
    content = "word"
    alone = len(patient.renderer.text(content))
    one = len(patient.renderer.prompt([_user(content)], None)) - alone
    three = (
        len(patient.renderer.prompt([_user(content), _assistant(content), _user(content)], None)) - 3 * alone
    )
    padded = len(patient.renderer.prompt([_user(f"\n  {content}\n\n")], None)) - alone
    whole = len(patient.renderer.text(f"\n  {content}\n\n")) - alone
    yield Finding(
        check="template",
        status=Status.OK,
        seen=f"adds {one} tokens to one message, {three} to three",
        data={"one": one, "three": three},
    )
    if padded < one + whole:
        yield Finding(
            check="template strips",
            status=Status.NOTE,
            seen="blanks around a message's content are dropped",
            meaning="Contents that begin or end with blanks are shorter on the server; loadgen's own never do.",
        )


def _placement(patient: Patient) -> Iterator[Finding]:
    """Two consecutive prompts of one session: how much of the first is the beginning of the second."""
    system = {"role": "system", "content": "You are a coding agent that works on one repository."}
    turns = [
        _user("Please read the first file."),
        _assistant("I have read it."),
        _user("Now read the second one."),
    ]
    cases: list[tuple[str, list[dict[str, Any]], list[Any] | None]] = [
        ("plain", turns, None),
        ("with a system prompt", [system, *turns], None),
        ("with a system prompt and tools", [system, *turns], [_TOOL]),
    ]
    for name, messages, tools in cases:
        try:
            before, after = (
                patient.renderer.prompt(messages[:-2], tools),
                patient.renderer.prompt(messages, tools),
            )
        except LoadgenError as error:
            yield Finding(check="template moves", status=Status.WARN, seen=f"{name}: {error}")
            continue
        shared = common_prefix(before, after)
        # A generation prompt at the end may differ; what was content may not.
        lost = len(before) - shared
        if lost > max(8, len(before) // 4):
            yield Finding(
                check="template moves",
                status=Status.FAIL,
                seen=f"{name}: the second turn shares {shared} of the first one's {len(before)} tokens",
                meaning="The template moves earlier tokens (tools or system text go before the last user message, or old text is dropped): "
                "no cache can hit beyond that point, whatever the tier.",
                remedy="Use a template that appends, or expect reuse to end there: loadgen's expected reuse already does.",
                data={"case": name, "shared": shared, "first": len(before)},
            )
        else:
            yield Finding(
                check="template moves",
                status=Status.OK,
                seen=f"{name}: the second turn begins with {shared} of the first one's {len(before)} tokens",
                data={"case": name, "shared": shared, "first": len(before)},
            )


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}
