"""What the engine works on and what it reports: one request, one step."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from loadgen.sim.store import Held
from loadgen.sim.streams import Stream


class Request:
    """One request and what became of it. `full` is the stream of prompt and answer, `prompt` and `output` are tokens."""

    __slots__ = (
        "_joined", "aborted", "blocks", "coming", "computed", "emitted", "external", "external_space", "finish_s", "first_token_s",
        "full", "grown", "hbm", "hbm_space", "held", "load_s", "output", "owner", "preemptions", "prompt",
        "queued_s", "ready_s", "save", "scheduled_s", "sources", "state", "store_s", "stream",
    )  # fmt: skip

    def __init__(
        self,
        stream: Stream,
        prompt: int,
        output: int,
        *,
        ready_s: float,
        full: Stream | None = None,
        hbm_space: Hashable = None,
        external_space: Hashable = None,
        save: bool = True,
        owner: Any = None,
    ) -> None:
        self.stream = stream
        self.prompt = prompt
        self.output = output
        self.ready_s = ready_s
        self.full = stream if full is None else full
        self.hbm_space = hbm_space
        self.external_space = external_space
        self.save = save
        self.owner = owner  # whatever the caller needs to find its own
        self.hbm = 0  # prompt tokens found in HBM
        self.external = 0  # prompt tokens loaded from external tiers
        self.sources: dict[str, int] = {}  # the same by the tier's source label
        self.load_s = 0.0
        self.store_s = 0.0
        self.scheduled_s = math.nan
        self.first_token_s = math.nan
        self.finish_s = math.nan
        self.queued_s = 0.0
        self.preemptions = 0
        self.emitted = 0
        self.computed = 0
        self.coming = 0  # tokens that are being loaded
        self.blocks = 0
        self.held: Held = []
        self.grown = 0  # tokens for which blocks are reserved
        self.state = "new"
        self.aborted = False
        self._joined = 0

    @property
    def cached(self) -> int:
        return self.hbm + self.external


class Step:
    """What one call of `Engine.step` did between `start_s` and `end_s`."""

    __slots__ = (
        "admitted",
        "decoders",
        "end_s",
        "failed",
        "finished",
        "prefilled",
        "prompt_tokens",
        "start_s",
        "tokens",
    )

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.end_s = start_s
        self.admitted: list[Request] = []
        self.prefilled: list[Request] = []  # finished their prefill: one token each at end_s
        self.decoders: list[Request] = []  # one token each at end_s (empty when steps were leapt over)
        self.finished: list[Request] = []
        self.failed: list[Request] = []  # their load failed
        self.prompt_tokens = 0  # computed in this step
        self.tokens = 0  # generated in this step
