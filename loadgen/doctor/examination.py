"""The whole examination: which checks, in which order, and how much they will send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadgen.doctor.checks import answer, calibration, endpoint, path, prompt, tier
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient
from loadgen.errors import LoadgenError


@dataclass(frozen=True)
class Choice:
    """What is asked for beyond the checks that cost next to nothing."""

    probe_tier: bool = True
    curve_tokens: int | None = None
    taxes: bool = False

    def prompt_tokens(self, patient: Patient, off: Patient | None) -> int:
        """About how many prompt tokens the examination will send, at most."""
        probe = patient.probe_tokens
        total = 2 * 1_200
        if self.probe_tier:
            total += 9 * probe
            if patient.evict:
                total += 2 * (patient.facts.max_model_len or 0)  # and the pool, whose size is not known yet
        if self.curve_tokens:
            total += int(2 * self.curve_tokens * 1.875)
        if self.taxes:
            total += 6 * probe * (5 if off is not None else 4)
        return total


def examine(patient: Patient, choice: Choice, off: Patient | None = None) -> Iterator[Finding]:
    """All findings, as they are made. A check that breaks off is a finding, and the others go on."""
    controls = tier.Controls()
    parts: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("client", lambda: path.examine(patient)),
        ("endpoint", lambda: endpoint.examine(patient)),
        ("prompt", lambda: prompt.examine(patient)),
        ("answer", lambda: answer.examine(patient)),
    ]
    if choice.probe_tier:
        parts.append(("tier", lambda: tier.examine(patient, controls)))
    if choice.curve_tokens is not None:
        target = choice.curve_tokens
        parts.append(("cold curve", lambda: calibration.cold_curve(patient, controls, target)))
    if choice.taxes:
        parts.append(("write tax", lambda: calibration.write_taxes(patient, controls, off)))
    for name, part in parts:
        try:
            yield from part()
        except LoadgenError as error:
            yield Finding(
                check=name,
                status=Status.FAIL,
                seen=str(error),
                meaning="The endpoint went away, or does not answer this at all.",
                remedy="Read its log.",
            )
