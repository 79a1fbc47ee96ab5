"""What the tier is worth in the reader's units: GPU-seconds, sessions a GPU, bytes a day.

Sums of a run, put on an hour or a day of the same load. A figure whose inputs are missing is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadgen.report.columns import ABSENT, Turns
from loadgen.report.explain import ColdFit

HOUR_S, DAY_S = 3600.0, 86_400.0


@dataclass(frozen=True)
class Worth:
    """`hours` is the run's length on the endpoint's clock; rates assume that the load goes on like this."""

    hours: float
    gpus: int
    saved_gpu_s_per_hour: float | None  # prefill of tokens that came from the external tier
    loading_gpu_s_per_hour: float | None  # GPUs that wait for a load inside the forward pass
    read_bytes_per_day: float | None
    written_bytes_per_day: float | None
    sourced_turns: int
    turns: int

    @property
    def net_gpu_s_per_hour(self) -> float | None:
        if self.saved_gpu_s_per_hour is None or self.loading_gpu_s_per_hour is None:
            return None
        return self.saved_gpu_s_per_hour - self.loading_gpu_s_per_hour


def worth(
    turns: Turns,
    fit: ColdFit | None,
    *,
    total_s: float,
    gpus: int = 1,
    kv_bytes_per_token: float | None = None,
    load_s: float | None = None,
    loaded_bytes: float | None = None,
    stored_bytes: float | None = None,
) -> Worth:
    """Worth of the external tier over one run of `total_s` endpoint seconds.

    Saved: what `fit` says the external tokens of the sourced turns would have cost to compute behind their HBM
    hits, a (e) + b ((h + e)^2 - h^2), on `gpus` GPUs. `load_s` is the time in which a synchronous connector held
    the GPUs (0 for one that loads before scheduling), from the explanation. Read: `loaded_bytes` as
    counted by the connector or the storage; else external tokens times `kv_bytes_per_token`. Written: `stored_bytes`, counted
    as well; else every token computed, which a connector that stores whole chunks once does not exceed.
    """
    if total_s <= 0:
        raise ValueError(f"a run of {total_s} s has no rates")
    sourced = turns.ok & (turns.tiers[:, 0] != ABSENT)
    compute, hbm, external = (turns.tiers[sourced, column].astype(float) for column in range(3))
    saved = None
    if fit is not None:
        seconds = fit.a * external + fit.b * ((hbm + external) ** 2 - hbm**2)
        saved = float(seconds.sum()) * gpus / total_s * HOUR_S
    read = written = None
    if kv_bytes_per_token is not None:
        read = float(external.sum()) * kv_bytes_per_token / total_s * DAY_S
        written = float(compute.sum()) * kv_bytes_per_token / total_s * DAY_S
    if loaded_bytes is not None:
        read = loaded_bytes / total_s * DAY_S
    if stored_bytes is not None:
        written = stored_bytes / total_s * DAY_S
    return Worth(
        hours=total_s / HOUR_S,
        gpus=gpus,
        saved_gpu_s_per_hour=saved,
        loading_gpu_s_per_hour=None if load_s is None else load_s * gpus / total_s * HOUR_S,
        read_bytes_per_day=read,
        written_bytes_per_day=written,
        sourced_turns=int(sourced.sum()),
        turns=len(turns),
    )


def sessions_within(
    ttft_s_by_sessions: Mapping[int, Sequence[float | None]], limit_s: float, share: float
) -> int | None:
    """The most live sessions at which at least `share` of the turns had their first token within `limit_s`.

    `ttft_s_by_sessions` comes from a sweep over concurrency: sessions to TTFTs, null for a turn without a first
    token. Stops at the first number that fails, since a pass behind a failure is luck; null where the smallest
    number fails. Divide by the GPUs of the server for sessions a GPU.
    """
    best = None
    for sessions in sorted(ttft_s_by_sessions):
        times = ttft_s_by_sessions[sessions]
        within = sum(1 for time in times if time is not None and time <= limit_s)
        if not times or within < share * len(times):
            break
        best = sessions
    return best
