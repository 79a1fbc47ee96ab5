"""Findings for people, as they come, and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient

_STYLE = {
    Status.OK: "green",
    Status.NOTE: "cyan",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIP: "dim",
}


def print_finding(finding: Finding, console: Console) -> None:
    head = Text.assemble(
        (f"{finding.status.value:<4}", _STYLE[finding.status]),
        "  ",
        (finding.check, "bold"),
        f": {finding.seen}",
    )
    console.print(head, soft_wrap=False)
    if finding.meaning:
        console.print(Padding(Text(finding.meaning), (0, 0, 0, 6)))
    if finding.remedy:
        console.print(Padding(Text(f"→ {finding.remedy}"), (0, 0, 0, 6)))


def print_summary(findings: Sequence[Finding], patient: Patient, console: Console) -> None:
    counts = Counter(finding.status for finding in findings)
    words = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
    console.print(f"\n{words}; {patient.prompt_tokens_sent:,} prompt tokens sent")


def as_json(findings: Sequence[Finding], patient: Patient) -> str:
    """One object: the endpoint, the worst status, and all findings."""
    worst = max(
        (f.status for f in findings),
        key=[Status.SKIP, Status.OK, Status.NOTE, Status.WARN, Status.FAIL].index,
    )
    body = {
        "url": patient.api.url,
        "model": patient.facts.model,
        "worst": worst,
        "prompt_tokens_sent": patient.prompt_tokens_sent,
        "findings": findings,
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=1).decode()
