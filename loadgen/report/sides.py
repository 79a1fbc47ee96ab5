"""Which runs are compared with which: run folders and folders of runs, grouped into sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loadgen.errors import InputError
from loadgen.measure.run import RUN_FILE, RunInfo, read_run
from loadgen.report.columns import Turns
from loadgen.report.pairing import differences
from loadgen.report.summary import measure, summary_of
from loadgen.report.validity import Code, Reason, reason

By = Literal["auto", "arm", "argument"]


@dataclass
class Side:
    """Runs of one arm (or of one argument): their folders, `run.json` and summaries, in the same order."""

    label: str
    folders: list[Path] = field(default_factory=list)
    infos: list[RunInfo] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[Reason] = field(
        default_factory=list
    )  # the runs' own, and work that differs from the first run's

    def values(self, *path: str) -> list[float] | None:
        """One figure of each run by its path in the summary; None when a run lacks it, since dropping it would choose."""
        found: list[float] = []
        for summary in self.summaries:
            value: Any = summary
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is None or value <= 0:
                return None
            found.append(float(value))
        return found


def average(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One summary whose figures are the means over runs; null where any run has null. What is no figure is the first run's."""
    first = summaries[0]
    found: dict[str, Any] = {}
    for name, value in first.items():
        values: list[Any] = [summary.get(name) for summary in summaries]
        if isinstance(value, dict):
            found[name] = average([one if isinstance(one, dict) else {} for one in values])
        elif name in ("valid", "reasons", "arm", "protocol", "clock") or (len(values) == 1):
            found[name] = value
        else:
            found[name] = None if any(one is None for one in values) else sum(values) / len(values)
    if "valid" in found:
        found["valid"] = all(summary["valid"] for summary in summaries)
    return found


def run_folders(argument: Path) -> list[Path]:
    """The argument itself when it is a run, else the runs inside it, sorted. Raises InputError when there is none."""
    if (argument / RUN_FILE).is_file():
        return [argument]
    if not argument.is_dir():
        raise InputError(f"{argument} is no folder; give a run folder, or a folder of runs")
    found = sorted(path.parent for path in argument.glob(f"*/{RUN_FILE}"))
    if not found:
        raise InputError(f"{argument} is neither a run folder (it has no {RUN_FILE}) nor does it hold any")
    return found


def split(arguments: Sequence[Path], by: By = "auto") -> list[tuple[str, list[Path]]]:
    """(label, run folders) of each side, in the order in which they were named.

    `auto`: by arm when several arms are among the runs, else by argument (the same arm before and after a change).
    """
    folders = [(argument, folder) for argument in arguments for folder in run_folders(argument)]
    if repeated := [
        folder
        for _, folder in folders
        if sum(other.resolve() == folder.resolve() for _, other in folders) > 1
    ]:
        raise InputError(f"{repeated[0]} was given twice; a run can only be on one side, once")
    arms = [read_run(folder).arm for _, folder in folders]
    by_arm = by == "arm" or (by == "auto" and len(set(arms)) > 1)
    short = len({argument.name for argument in arguments}) == len(arguments)
    sides: dict[str, list[Path]] = {}
    for (argument, folder), arm in zip(folders, arms, strict=True):
        sides.setdefault(arm if by_arm else argument.name if short else str(argument), []).append(folder)
    return list(sides.items())


def read_sides(split_runs: Sequence[tuple[str, list[Path]]]) -> list[Side]:
    """Measure every run, one in memory at a time beside the first, against whose work each other's is checked."""
    sides: list[Side] = []
    base: tuple[str, Turns] | None = None
    for label, folders in split_runs:
        side = Side(label)
        for folder in folders:
            run = measure(folder)
            side.folders.append(folder)
            side.infos.append(run.info)
            side.summaries.append(summary_of(run))
            side.reasons.extend(_named(one, folder) for one in run.reasons)
            if base is None:
                base = (folder.name, run.turns)
            elif unequal := differences(base[1], run.turns):
                side.reasons.append(reason(Code.ARMS_DIFFER, f"{base[0]} against {folder.name}: {unequal}."))
            if setting := _other_setting((sides[0] if sides else side).infos[0], run.info):
                side.reasons.append(reason(Code.ARMS_DIFFER, f"{folder.name}: {setting}."))
            if run.info.endpoint.time_scale != (sides[0] if sides else side).infos[0].endpoint.time_scale:
                side.reasons.append(reason(Code.ARMS_DIFFER, f"{folder.name} has another time scale."))
        sides.append(side)
    return sides


def _other_setting(first: RunInfo, other: RunInfo) -> str:
    """In what two runs were set up differently although their turns look alike; only what both of them state counts."""
    pairs = [
        ("schedule", first.schedule, other.schedule),
        ("policy", first.policy, other.policy),
        ("workload", first.workload, other.workload),
    ]
    for kind, left, right in pairs:
        names = left.keys() & right.keys() & (_SETTINGS.get(kind) or left.keys())
        for name in sorted(names):
            if left[name] != right[name]:
                return f"another {kind} ({name}: {left[name]} against {right[name]})"
    return ""


_SETTINGS = {"policy": {"answers", "forced_output", "nonce"}, "workload": {"trace_sha256"}}


def one_arm(side: Side) -> None:
    """Raise InputError when the side's runs are of several arms."""
    arms = sorted({info.arm for info in side.infos})
    if len(arms) > 1:
        raise InputError(
            f"the runs of the {side.label} are of several arms ({', '.join(arms)}); name those of one arm"
        )


def _named(one: Reason, folder: Path) -> Reason:
    return Reason(one.code, one.sentence, one.remedy, f"{one.detail} ({folder.name})".strip())
