"""A profile from the samples of real runs.

The coefficients come from turns that were alone in flight, by non-negative least squares on relative errors:

    TTFT = t0 + c L + a (L - h) + b (L^2 - h^2) + s stored + load + bytes / bandwidth

How good they are is told on what they were not fitted to: each cold length left out in turn, whole runs with
another number of sessions, and turns that overlapped with others. Never on random turns: a turn's neighbours in its
own run know its time.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from loadgen.errors import InputError
from loadgen.measure.journal import read_samples
from loadgen.measure.run import RunInfo, read_run
from loadgen.measure.sample import Sample
from loadgen.sim.engine import Engine
from loadgen.sim.profile import Arm, Compute, Profile, Scheduler, Tier
from loadgen.sim.request import Request
from loadgen.sim.streams import Stream

_LENGTHS = 4  # distinct cold lengths that a fit needs
_SAME = 0.03  # lengths closer than this are one
_CHUNK = 256
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One turn in seconds of the endpoint."""

    run: int
    session: str
    turn: int
    sent_s: float
    end_s: float
    ttft_s: float
    prompt: int
    hbm: int
    external: int
    output: int
    tpot_s: float | None
    reuse: int
    alone: bool

    @property
    def cold(self) -> bool:
        return not self.hbm and not self.external


@dataclass(frozen=True, slots=True)
class Error:
    """Prediction against measurement of turns that the fit did not see: ratio - 1 of their mean TTFT, and the worst."""

    held_out: str
    turns: int
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class Fitted:
    profile: Profile
    errors: list[Error]
    untested: list[str]  # what the runs cannot tell
    skipped: dict[str, int]  # turns left out, by reason


class Runs:
    """Samples of all runs as rows. Raises InputError when a run is no run or holds nothing usable."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.infos: list[RunInfo] = []
        self.rows: list[Row] = []
        self.skipped: dict[str, int] = defaultdict(int)
        for number, folder in enumerate(folders):
            if not folder.is_dir():
                raise InputError(f"{folder} is not a run folder")
            info = read_run(folder)
            rows = self._read(number, folder, info.endpoint.time_scale)
            self.infos.append(info)
            self.rows += rows
        # an arm that ever loaded has a tier, and pays for storing in every run
        arms = {self.infos[row.run].arm for row in self.rows if row.external}
        self.tiered = [info.arm in arms for info in self.infos]

    def _read(self, number: int, folder: Path, scale: float) -> list[Row]:
        samples = []
        for sample in read_samples(folder):
            if (reason := _unusable(sample)) is not None:
                self.skipped[reason] += 1
            else:
                samples.append(sample)
        samples.sort(key=lambda sample: sample.send_ns)
        rows = []
        latest = 0
        for at, sample in enumerate(samples):
            following = samples[at + 1].send_ns if at + 1 < len(samples) else sample.end_ns
            alone = latest <= sample.send_ns and sample.end_ns <= following
            latest = max(latest, sample.end_ns)
            rows.append(_row(number, sample, scale, alone))
        return rows


def _unusable(sample: Sample) -> str | None:
    if sample.error is not None or sample.first_token_ns is None or sample.prompt_tokens is None:
        return "failed, or without a first token or usage"
    if sample.cached_tokens is None:
        return "cached_tokens unknown"
    if sample.cached_tokens and sample.tiers is None:
        return "hits from an unknown tier"
    return None


def _row(number: int, sample: Sample, scale: float, alone: bool) -> Row:
    assert sample.first_token_ns is not None
    assert sample.prompt_tokens is not None
    tiers = sample.tiers
    output = sample.output_tokens or 1
    rest = output - (sample.first_event_tokens or 1)
    tpot = None
    if sample.last_token_ns is not None and rest > 0 and not sample.burst:
        tpot = (sample.last_token_ns - sample.first_token_ns) / rest / 1e9 * scale
    return Row(
        number, sample.session, sample.turn, sample.send_ns / 1e9 * scale, sample.end_ns / 1e9 * scale,
        (sample.first_token_ns - sample.send_ns) / 1e9 * scale, sample.prompt_tokens,
        tiers.hbm if tiers else 0, tiers.external if tiers else 0, output, tpot, sample.expected_reuse or 0, alone,
    )  # fmt: skip


def fit(
    runs: Runs,
    name: str,
    kv_bytes: int,
    pool_tokens: int | None = None,
    *,
    max_batched: int = 8192,
    block: int = 16,
) -> Fitted:
    """Fit a profile. Raises InputError when the runs hold too little."""
    alone = [row for row in runs.rows if row.alone]
    groups = _lengths(alone)
    if len(groups) < _LENGTHS:
        known = ", ".join(f"{round(statistics.mean(group)):,}" for group in groups) or "none"
        raise InputError(
            f"a fit needs at least {_LENGTHS} prompt lengths that were cold and alone in flight; the runs have {len(groups)} ({known} tokens). "
            "Run a sweep of width 1 over contexts of different lengths"
        )
    pool = pool_tokens or _pool(runs.infos)
    if pool is None:
        raise InputError(
            "the size of the KV pool is not in run.json; give --pool-tokens (num_gpu_blocks x block_size)"
        )

    def make(rows: list[Row]) -> Profile:
        return _profile(rows, runs, name, kv_bytes, pool, max_batched, block)

    errors, untested = [], []
    errors += _held_out_lengths(runs, groups, make)
    for error in (_held_out_sessions(runs, make), _held_out_overlap(runs, make)):
        if isinstance(error, str):
            untested.append(error)
        else:
            errors += error
    return Fitted(make(alone), errors, untested, dict(runs.skipped))


def _lengths(rows: list[Row]) -> list[list[int]]:
    """Cold prompt lengths, those within 3 % of each other together."""
    groups: list[list[int]] = []
    for length in sorted(row.prompt for row in rows if row.cold):
        if groups and length <= groups[-1][0] * (1 + _SAME):
            groups[-1].append(length)
        else:
            groups.append([length])
    return groups


def _pool(infos: list[RunInfo]) -> int | None:
    for info in infos:
        if isinstance(value := info.endpoint.server.get("capacity_tokens"), int | float):
            return int(value)
    return None


def _profile(
    rows: list[Row], runs: Runs, name: str, kv_bytes: int, pool: int, max_batched: int, block: int
) -> Profile:
    from scipy.optimize import nnls  # heavy: only who fits pays for it

    def features(row: Row) -> list[float]:
        computed = row.prompt - row.hbm - row.external
        cached = row.prompt - computed
        stored = max(0, row.prompt // _CHUNK * _CHUNK - row.external - row.hbm) if runs.tiered[row.run] else 0
        return [
            1.0, row.prompt, computed, row.prompt**2 - cached**2, float(row.external > 0),
            row.external * kv_bytes, stored,
        ]  # fmt: skip

    matrix = np.array([features(row) for row in rows], np.float64)
    matrix[:, 4] *= (
        _distinct([row.external for row in rows if row.external]) > 1
    )  # one size: all of it is bandwidth
    measured = np.array([row.ttft_s for row in rows])
    weighted = matrix / measured[:, None]
    scale = np.maximum(np.abs(weighted).max(axis=0), 1e-300)
    solution: Array = nnls(weighted / scale, np.ones(len(rows)))[0] / scale
    t0, c, a, b, load_s, per_byte, store = (float(value) for value in solution)
    tpots = [row.tpot_s for row in rows if row.tpot_s is not None]
    compute = Compute(
        host_s=t0, host_s_per_token=c, prefill_s_per_token=a, prefill_s_per_token2=b,
        decode_s=statistics.median(tpots) if tpots else 0.02,
    )  # fmt: skip
    arms = {"off": Arm(pool_tokens=pool)}
    if per_byte > 0:
        tier = Tier(
            name="external",
            read_gb_s=1e-9 / per_byte,
            read_fixed_s=load_s,
            store_s_per_token=store,
            chunk=_CHUNK,
        )
        arms["offload"] = Arm(pool_tokens=pool, tiers=[tier])
    return Profile(
        name=name, description=f"fitted to {len(rows)} turns of {', '.join(info.run for info in runs.infos)}", model=runs.infos[0].endpoint.model,
        max_model_len=runs.infos[0].endpoint.max_model_len or pool, kv_bytes_per_token=kv_bytes, compute=compute, arms=arms,
        scheduler=Scheduler(max_num_batched_tokens=max_batched, block_size=block),
    )  # fmt: skip


def _distinct(values: list[int]) -> int:
    found: list[int] = []
    for value in sorted(values):
        if not found or value > found[-1] * (1 + _SAME):
            found.append(value)
    return len(found)


# -- errors on what was held out


def _held_out_lengths(
    runs: Runs, groups: list[list[int]], make: Callable[[list[Row]], Profile]
) -> list[Error]:
    alone = [row for row in runs.rows if row.alone]
    errors = []
    for group in groups:
        out = {*group}
        profile = make([row for row in alone if not (row.cold and row.prompt in out)])
        tested: list[Row] = []
        predicted: list[float] = []
        for number, tiered in enumerate(runs.tiered):
            rows = [
                replace(row, reuse=0) for row in alone if row.run == number and row.cold and row.prompt in out
            ]
            tested += rows
            predicted += predict(rows, profile, tiered)
        errors.append(_error(f"cold length {round(statistics.mean(group)):,}", tested, predicted))
    return errors


def _held_out_sessions(runs: Runs, make: Callable[[list[Row]], Profile]) -> list[Error] | str:
    """Leave out all runs of one number of sessions and replay them in the order in which they happened."""
    counts = sorted({info.plan.sessions for info in runs.infos})
    errors = []
    for count in counts:
        inside = {number for number, info in enumerate(runs.infos) if info.plan.sessions == count}
        kept = [row for row in runs.rows if row.alone and row.run not in inside]
        if len(_lengths(kept)) < _LENGTHS:
            continue
        profile = make(kept)
        for number in sorted(inside):
            if runs.tiered[number] and "offload" not in profile.arms:
                continue  # what is left has never seen the tier
            tested = [row for row in runs.rows if row.run == number]
            predicted = predict(tested, profile, runs.tiered[number])
            errors.append(_error(f"N = {count} ({runs.infos[number].run})", tested, predicted))
    return (
        errors
        or "other numbers of sessions: no run can be left out (what is left needs 4 cold lengths and, for a run with offload, loads of its own)"
    )


def _held_out_overlap(runs: Runs, make: Callable[[list[Row]], Profile]) -> list[Error] | str:
    """Turns that were not alone in flight were never fitted to."""
    profile = make([row for row in runs.rows if row.alone])
    errors = []
    for number, info in enumerate(runs.infos):
        rows = [row for row in runs.rows if row.run == number]
        predicted = predict(rows, profile, runs.tiered[number])
        pairs = [(row, value) for row, value in zip(rows, predicted, strict=True) if not row.alone]
        if pairs:
            errors.append(
                _error(
                    f"turns that overlap ({info.run})",
                    [row for row, _ in pairs],
                    [value for _, value in pairs],
                )
            )
    return errors or "concurrency: no two turns overlapped"


def _error(title: str, rows: list[Row], predicted: list[float]) -> Error:
    measured = [row.ttft_s for row in rows]
    ratios = [value / seconds - 1 for value, seconds in zip(predicted, measured, strict=True)]
    return Error(title, len(rows), sum(predicted) / sum(measured) - 1, max(ratios, key=abs))


def predict(rows: list[Row], profile: Profile, tiered: bool) -> list[float]:
    """TTFT of each row of one run when the engine plays them as they happened.

    Each turn is sent as long after the latest end that preceded it as it was in the run: that keeps a sweep's
    barriers, a closed schedule's lanes and a user's gaps without knowing which it was. Sessions are streams that
    grow; what a turn could reuse is its own session's earlier prompt, up to its expected reuse.
    """
    if not rows:
        return []
    arm = "offload" if "offload" in profile.arms and tiered else "off"
    engine = Engine(profile, arm)
    order = sorted(range(len(rows)), key=lambda at: rows[at].sent_s)
    ends = sorted(order, key=lambda at: rows[at].end_s)
    follows: dict[int | None, list[int]] = defaultdict(list)
    last, position = None, 0
    for at in order:
        while position < len(ends) and rows[ends[position]].end_s <= rows[at].sent_s and ends[position] != at:
            last = ends[position]
            position += 1
        follows[last].append(at)
    streams: dict[tuple[int, str], Stream] = {}
    predicted = [0.0] * len(rows)
    origin = rows[order[0]].sent_s

    def send(at: int, sent_s: float) -> None:
        row = rows[at]
        key = (row.run, row.session)
        known = streams.get(key)
        stream = Stream() if known is None else Stream(known, min(row.reuse, row.prompt))
        streams[key] = stream
        engine.submit(
            Request(
                stream,
                row.prompt,
                row.output,
                ready_s=sent_s + engine.cost.host(row.prompt),
                owner=(at, sent_s),
            )
        )

    for at in follows[None]:
        send(at, rows[at].sent_s - origin)
    while (step := engine.step(leap=True)) is not None:
        for request in step.finished:
            at, sent_s = request.owner
            predicted[at] = request.first_token_s - sent_s
            for following in follows[at]:
                send(following, request.finish_s + rows[following].sent_s - rows[at].end_s)
    return predicted


def to_toml(profile: Profile) -> str:
    """The profile as a file that `profile.load` reads."""
    facts = msgspec.to_builtins(profile)
    lines = [f"# Written by loadgen sim fit. {profile.description}"]
    arms = facts.pop("arms")
    tables = {key: facts.pop(key) for key in ("scheduler", "compute")}
    lines += [f"{key} = {_toml(value)}" for key, value in facts.items()]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    for name, arm in arms.items():
        tiers = arm.pop("tiers")
        lines += [
            "",
            f"[arms.{_toml(name)}]",
            *(f"{k} = {_toml(v)}" for k, v in arm.items() if v is not None),
        ]
        for tier in tiers:
            lines += [
                "",
                f"[[arms.{_toml(name)}.tiers]]",
                *(f"{k} = {_toml(v)}" for k, v in tier.items() if v is not None),
            ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A TOML value; JSON's strings and numbers are TOML's."""
    return msgspec.json.encode(value).decode()
