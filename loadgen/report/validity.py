"""Every reason for which the numbers of a run may not be used: its code, its sentence and its remedy.

An invalid run is reported in full and never passes a gate. Limits on the client's own lag are wall time; they do not
scale with a simulated endpoint's clock. Other parts stamp a run by adding an `Incident` with one of these codes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Code(StrEnum):
    """Stable names of the reasons; the values stand in `summary.json` and in `run.json`'s incidents."""

    INTERRUPTED = "interrupted"
    NO_TURNS = "no_turns"
    SESSIONS_CUT = "sessions_cut"
    ERROR_LIMIT = "error_limit"
    LOST_WORKER = "lost_worker"
    MISSING_FINAL = "missing_final"
    LOST_SAMPLES = "lost_samples"
    CLIENT_UNOBSERVED = "client_unobserved"
    CLIENT_SATURATED = "client_saturated"
    LOOP_LAG = "loop_lag"
    SEND_LATE = "send_late"
    COALESCED = "coalesced_first_tokens"
    USAGE_MISSING = "usage_missing"
    PROMPT_DRIFT = "prompt_drift"
    COLD_NOT_PROVEN = "cold_not_proven"
    TIME_SCALE_CHANGED = "time_scale_changed"
    LATE_SIMULATED_TOKENS = "late_simulated_tokens"
    ARMS_DIFFER = "arms_differ"
    INTERNAL_ERROR = "internal_error"


_REASONS: dict[Code, tuple[str, str]] = {
    # code: (sentence, remedy)
    Code.INTERRUPTED: (
        "The run was stopped before its trace was used up.",
        "Run it again to the end; the samples so far are kept and reported.",
    ),
    Code.NO_TURNS: (
        "No turn was measured.",
        "Check the endpoint with `loadgen run … --dry-run` and run again.",
    ),
    Code.SESSIONS_CUT: (
        "Sessions ended before their last turn, so the work done is not the work planned; total time and speed-up are withheld.",
        "Find out why from the errors, or use recorded answers, which keep a session going after a failed turn.",
    ),
    Code.ERROR_LIMIT: (
        "More turns failed than the error limit allows.",
        "Look at the errors by class; lower the load or raise the server's timeouts, then run again.",
    ),
    Code.LOST_WORKER: (
        "A worker was lost while sessions of it were under way.",
        "Run again with fewer sessions a worker, or look for what killed it (memory, the machine).",
    ),
    Code.MISSING_FINAL: (
        "A worker never delivered its final snapshot, so the live figures may lack its last turns.",
        "Give the drain more time, or run fewer workers; the samples on disk are complete for what was measured.",
    ),
    Code.LOST_SAMPLES: (
        "Samples were lost on their way to the disk.",
        "Free space where the run folder lies and run again.",
    ),
    Code.CLIENT_UNOBSERVED: (
        "The client's own load was not recorded, so nobody knows whether it was the bottleneck.",
        "Keep `client-*.jsonl` beside the samples; they are written by every run.",
    ),
    Code.CLIENT_SATURATED: (
        "A load-generator process used its whole core: the client was a bottleneck.",
        "Use more workers (`--processes`) or a machine with free cores.",
    ),
    Code.LOOP_LAG: (
        "The client's event loop was late, so it sent and read late.",
        "Use more workers (`--processes`), or take other load off this machine.",
    ),
    Code.SEND_LATE: (
        "Turns were sent later than the schedule wanted because the client was busy.",
        "Use more workers (`--processes`), or take other load off this machine.",
    ),
    Code.COALESCED: (
        "First tokens were read together with later ones while the client's loop was late or not watched, so their TTFT is only an upper bound.",
        "Use more workers (`--processes`), take other load off this machine, or slow a simulated endpoint down (`--scale`).",
    ),
    Code.USAGE_MISSING: (
        "The server did not report its token counts for every turn.",
        "Use a server that sends `usage` in the stream (`stream_options.include_usage`).",
    ),
    Code.PROMPT_DRIFT: (
        "Prompts had another number of tokens than planned.",
        "Check that `--tokenizer` is the served model's and that its chat template was measured (`loadgen run` prints it).",
    ),
    Code.COLD_NOT_PROVEN: (
        "First turns are not proven cold: the server reported cached tokens for them, or did not report any count.",
        "Start vLLM with `--enable-prompt-tokens-details`, use a nonce, and give every run a new one.",
    ),
    Code.TIME_SCALE_CHANGED: (
        "The simulated endpoint changed its time scale in mid-run.",
        "Leave the endpoint alone while a run is under way.",
    ),
    Code.LATE_SIMULATED_TOKENS: (
        "The simulated endpoint missed its own deadlines, so its times are not those of its profile.",
        "Lower `--scale`, or give the simulator a free core.",
    ),
    Code.INTERNAL_ERROR: (
        "loadgen itself failed in mid-run; what was measured until then is kept.",
        "Please report it with the words below; LOADGEN_DEBUG=1 shows where it happened.",
    ),
    Code.ARMS_DIFFER: (
        "The arms did not do the same work, so their times cannot be compared.",
        "Run all arms with the same workload, seed and output length.",
    ),
}


class Reason(msgspec.Struct, frozen=True):
    """One reason as it stands in a summary; `detail` holds this run's numbers."""

    code: str
    sentence: str
    remedy: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.detail}".strip()


def reason(code: Code, detail: str = "") -> Reason:
    """The reason with this code, with the numbers of the run at hand."""
    sentence, remedy = _REASONS[code]
    return Reason(code.value, sentence, remedy, detail)


def from_incident(code: str, detail: str) -> Reason:
    """The reason behind an incident of `run.json`; an unknown code is kept, since whoever wrote it meant something."""
    if code in set(Code):
        return reason(Code(code), detail)
    return Reason(code, f"The run reported {code!r}.", "See the notes of the run.", detail)
