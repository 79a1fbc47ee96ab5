"""The scheduler: continuous batching with chunked prefill, admission by KV blocks, preemption. No clock, no I/O.

Time is a float in seconds of the simulated machine. Whoever drives the engine submits requests with the
time at which they are ready and calls `step`; the HTTP driver waits until a step's end before it tells
anybody, the what-if does not wait. Each step gives every decoding request one token and spends what is left
of the token budget on prefills in order of arrival, as vLLM does; it differs in two documented ways: a
prompt's blocks are reserved whole at admission, and decoding reserves `_GROWTH` tokens at a time.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

from loadgen.sim.connector import Connector, ExternalTier, Found
from loadgen.sim.cost import Cost
from loadgen.sim.link import Link
from loadgen.sim.profile import Profile
from loadgen.sim.request import Request, Step
from loadgen.sim.store import PrefixStore
from loadgen.sim.streams import Stream

_GROWTH = 256


class Engine:
    def __init__(self, profile: Profile, arm: str, on_empty: Callable[[Stream], None] | None = None) -> None:
        chosen = profile.arm(arm)
        scheduler = profile.scheduler
        self.block = scheduler.block_size
        self.cost = Cost(profile.compute)
        # one block is vLLM's null block
        self.store = PrefixStore(self.block, chosen.pool_tokens // self.block - 1, "tail", on_empty)
        self.connector = Connector(chosen, profile.kv_bytes_per_token, on_empty)
        self.now_s = 0.0
        self.preemptions = 0
        self._budget = scheduler.max_num_batched_tokens
        self._seats = scheduler.max_num_seqs
        self._arrivals: list[tuple[float, int, Request]] = []
        self._waiting: deque[Request] = deque()
        self._loading: dict[Request, int] = {}  # asynchronous loads and how many of their parts are under way
        self._links = {tier: Link(tier) for tier in self.connector.tiers}
        self._full = False  # the first that waits found no blocks, and none were given back since
        self._recompute = chosen.on_load_failure == "recompute"
        self._prefilling: list[Request] = []
        self._running: dict[Request, None] = {}  # in order of admission: the last one is preempted first
        self._decoding: dict[Request, None] = {}
        self._finishing: list[tuple[int, int, Request]] = []  # by decode step at which the last token falls
        self._growing: list[tuple[int, int, Request]] = []  # by decode step before which blocks are needed
        self._kv = 0  # tokens of all decoding requests
        self._steps = 0  # decode steps so far
        self._count = 0

    # -- what is going on

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def loading(self) -> int:
        """Requests that wait for an asynchronous load."""
        return len(self._loading)

    def fits(self, tokens: int) -> bool:
        """Whether a request of so many tokens, prompt and answer, can ever be served."""
        return -(-tokens // self.block) <= self.store.capacity

    def next_start_s(self) -> float | None:
        """When the next step starts; none while there is nothing to do."""
        if self._running or (self._waiting and not self._full):
            return self.now_s
        event = self._next_event_s()
        return None if event == math.inf else max(self.now_s, event)

    def _next_event_s(self) -> float:
        """When the next request arrives or the next load ends."""
        event = self._arrivals[0][0] if self._arrivals else math.inf
        if self._loading:
            event = min(
                event, *(link.next_s() + tier.tier.read_fixed_s for tier, link in self._links.items())
            )
        return event

    # -- what the driver does

    def submit(self, request: Request) -> None:
        """Queue a request; it is seen from its `ready_s` on, which may lie in the past of an idle engine."""
        request.state = "queued"
        self._count += 1
        heapq.heappush(self._arrivals, (request.ready_s, self._count, request))

    def abort(self, request: Request) -> None:
        """The client went away. What was computed stays cached."""
        if request.state in ("finished", "aborted"):
            return
        if request.state in ("waiting", "loaded"):
            self._waiting.remove(request)
        if request in self._running or request.state in ("loading", "loaded"):
            self._leave(request)
        request.state = "aborted"
        request.aborted = True

    def step(self, leap: bool = False) -> Step | None:
        """Run one step, or with `leap` as many decode steps as nothing can happen between; none when idle."""
        start = self.next_start_s()
        if start is None:
            return None
        self.now_s = start
        step = Step(start)
        self._arrive()
        self._grow()
        if self._decoding and not leap:
            step.decoders = list(self._decoding)
        decoders, kv = len(self._decoding), self._kv
        spent = self._admit(step)
        chunks = self._chunks(decoders) if leap else 1
        spent += self._prefill(step, self._budget - decoders, chunks)
        if not decoders:
            self.now_s += spent
        else:
            steps = chunks if step.prompt_tokens or spent or not leap else self._leap(decoders, kv)
            self.now_s += spent + self.cost.decode_run(decoders, kv, steps)
            self._decode(steps, decoders, step)
        step.end_s = self.now_s
        self._finish(step)
        return step

    # -- parts of a step, in order

    def _arrive(self) -> None:
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= self.now_s:
            request = heapq.heappop(arrivals)[2]
            if not request.aborted:
                request.state = "waiting"
                self._waiting.append(request)
        if self._loading:
            for tier, link in self._links.items():
                for _, loader in link.ended(self.now_s - tier.tier.read_fixed_s):
                    assert isinstance(loader, Request)
                    self._loaded(loader)

    def _loaded(self, request: Request) -> None:
        """One part of an asynchronous load has come; with the last the request may be scheduled, before all others."""
        left = self._loading.get(request, 0) - 1
        if left > 0:
            self._loading[request] = left
        elif left == 0:
            del self._loading[request]
            request.load_s = self.now_s - request.load_s
            request.state = "loaded"
            self._full = False
            self._waiting.appendleft(request)

    def _grow(self) -> None:
        """Reserve blocks for the tokens that decoding requests generate next; preempt when there are none."""
        growing = self._growing
        while growing and growing[0][0] <= self._steps:
            step, _, request = heapq.heappop(growing)
            if request.state == "decoding" and step == self._grow_step(request):
                self._reserve_growth(request)

    def _grow_step(self, request: Request) -> int:
        """Decode step before which the request needs more blocks."""
        return self._steps + request.grown - request.prompt - self._emitted(request)

    def _reserve_growth(self, request: Request) -> None:
        last = request.prompt + request.output - 1
        target = min(last, request.prompt + self._emitted(request) + _GROWTH)
        needed = -(-target // self.block) - request.blocks
        while needed > 0 and not self.store.reserve(needed):
            victim = next(reversed(self._running))
            self._preempt(victim)
            if victim is request:
                return
        request.blocks += max(0, needed)
        request.grown = target
        if target < last:
            self._count += 1
            heapq.heappush(self._growing, (self._grow_step(request), self._count, request))

    def _preempt(self, request: Request) -> None:
        self.preemptions += 1
        request.preemptions += 1
        self._leave(request)
        request.computed = 0
        request.state = "waiting"
        self._waiting.appendleft(request)

    def _admit(self, step: Step) -> float:
        """Admit waiting requests in order while seats, budget and blocks last; seconds of synchronous loading."""
        spent = 0.0
        waiting = self._waiting
        if not waiting or self._full:
            return spent
        budget = (
            self._budget
            - len(self._decoding)
            - sum(r.prompt + r.emitted - r.computed for r in self._prefilling)
        )
        while waiting and budget > 0 and len(self._running) < self._seats:
            request = waiting[0]
            if request.state != "loaded":
                found = self._take_blocks(request)
                if found is None:
                    self._full = True
                    break
                waiting.popleft()
                loads = self.connector.load(found, request.external_space, request.stream, request.computed)
                external = max(0, min(found.tokens, request.prompt + request.emitted - 1) - request.computed)
                if external and self._load_fails(loads):
                    external = 0
                    if not self._recompute:
                        self._leave(request)
                        request.state = "failed"
                        step.failed.append(request)
                        continue
                self._count_sources(request, found, external)
                if loads and not self.connector.synchronous:
                    self._start_load(request, loads)
                    continue
                load_s = sum(tier.tier.read_fixed_s + size / tier.bytes_s for tier, size in loads)
                request.load_s += load_s
                spent += load_s
            else:
                waiting.popleft()
            self._land(request)
            if not request.preemptions:
                request.scheduled_s = self.now_s
                request.queued_s = self.now_s - request.ready_s
            request.state = "prefilling"
            self._prefilling.append(request)
            self._running[request] = None
            step.admitted.append(request)
            budget -= request.prompt + request.emitted - request.computed
        return spent

    @staticmethod
    def _load_fails(loads: list[tuple[ExternalTier, int]]) -> bool:
        """Counts the load at every tier that takes part."""
        outcomes = [tier.fails() for tier, _ in loads]
        return any(outcomes)

    def _take_blocks(self, request: Request) -> Found | None:
        """Hold what HBM has of the request and reserve the rest; what the external tiers have, or none without room."""
        store = self.store
        target = request.prompt + request.emitted
        hit = store.match(request.hbm_space, request.stream, (target - 1) // self.block)
        needed = -(-target // self.block) - hit
        if store.available - hit < needed and (
            store.available - store.idle_in(request.hbm_space, request.stream, hit) < needed
        ):
            return None
        request.held = store.hold(request.hbm_space, request.stream, hit)
        store.reserve(needed)
        request.blocks = hit + needed
        request.grown = request.blocks * self.block
        request.computed = hit * self.block
        return self.connector.lookup(request.external_space, request.stream, request.prompt)

    def _count_sources(self, request: Request, found: Found, external: int) -> None:
        """Note where the prompt comes from, at its first admission."""
        request.coming = external
        if request.preemptions:
            return
        local = request.computed
        request.hbm, request.external = local, external
        for tier, first, end in found.parts:
            part = min(end, local + external) - max(first, local)
            if part > 0:
                source = tier.tier.source
                request.sources[source] = request.sources.get(source, 0) + part

    def _start_load(self, request: Request, loads: list[tuple[ExternalTier, int]]) -> None:
        request.state = "loading"
        request.load_s = self.now_s  # until it has ended
        self._loading[request] = len(loads)
        for tier, size in loads:
            self._links[tier].add(self.now_s, size, request)

    def _land(self, request: Request) -> None:
        """What was loaded is in HBM now."""
        if request.coming:
            first = request.computed
            request.computed += request.coming
            request.coming = 0
            self.store.fill(
                request.held,
                request.hbm_space,
                request.stream,
                first // self.block,
                request.computed // self.block,
            )

    def _chunks(self, decoders: int) -> int:
        """Steps in a row that the oldest prefill fills alone, so that nobody is admitted and nothing else changes."""
        if not self._prefilling or self.connector.throttled:
            return 1
        oldest = self._prefilling[0]
        steps = (oldest.prompt + oldest.emitted - oldest.computed - 1) // max(1, self._budget - decoders)
        if decoders and steps > 1:
            steps = min(steps, self._finishing[0][0] - self._steps)
            if self._growing:
                steps = min(steps, self._growing[0][0] - self._steps)
        return max(1, steps)

    def _prefill(self, step: Step, budget: int, chunks: int) -> float:
        """Spend the token budget of `chunks` steps on prefills; seconds of compute and of storing what was computed."""
        if not self._prefilling:
            return 0.0
        spent = self.cost.step_s * chunks
        budget *= chunks
        left: list[Request] = []
        for request in self._prefilling:
            target = request.prompt + request.emitted
            end = min(target, request.computed + budget)
            if end > request.computed:
                budget -= end - request.computed
                step.prompt_tokens += end - request.computed
                spent += self.cost.prefill(request.computed, end)
                self.store.fill(
                    request.held, request.hbm_space, request.stream, request.computed // self.block,
                    min(end, request.prompt) // self.block,
                )  # fmt: skip
                request.computed = end
                if request.save:
                    stored = self.connector.save_s(
                        request.external_space, request.stream, min(end, request.prompt), self.now_s + spent
                    )
                    request.store_s += stored
                    spent += stored
            if request.computed < target:
                left.append(request)
            else:
                step.prefilled.append(request)
        self._prefilling = left
        return spent

    def _leap(self, decoders: int, kv: int) -> int:
        """Decode steps until a request ends, needs blocks, or one arrives."""
        steps = min(self._finishing[0][0], self._growing[0][0] if self._growing else 1 << 62) - self._steps
        event = self._next_event_s() if steps > 1 else math.inf
        if event < math.inf:
            wait = event - self.now_s
            if self.cost.decode_run(decoders, kv, steps) > wait:
                low, high = 1, steps  # the first number of steps after which the arrival is seen
                while low < high:
                    middle = (low + high) // 2
                    if self.cost.decode_run(decoders, kv, middle) >= wait:
                        high = middle
                    else:
                        low = middle + 1
                steps = low
        return max(1, steps)

    def _decode(self, steps: int, decoders: int, step: Step) -> None:
        self._steps += steps
        self._kv += steps * decoders
        step.tokens += steps * decoders

    def _finish(self, step: Step) -> None:
        """Take out requests whose last token came, then let finished prefills decode."""
        finishing = self._finishing
        while finishing and finishing[0][0] <= self._steps:
            at, _, request = heapq.heappop(finishing)
            if request.state == "decoding" and at == self._last_step(request):
                self._complete(request, step)
        for request in step.prefilled:
            request.emitted += 1
            step.tokens += 1
            if request.emitted == 1:
                request.first_token_s = self.now_s
            if request.emitted >= request.output:
                self._complete(request, step)
                continue
            request.state = "decoding"
            request._joined = self._steps
            self._decoding[request] = None
            self._kv += request.prompt + request.emitted
            self._count += 1
            heapq.heappush(finishing, (self._last_step(request), self._count, request))
            if request.grown < request.prompt + request.output - 1:
                heapq.heappush(self._growing, (self._grow_step(request), self._count, request))
        while finishing and (
            finishing[0][2].state != "decoding" or finishing[0][0] != self._last_step(finishing[0][2])
        ):
            heapq.heappop(finishing)

    def _last_step(self, request: Request) -> int:
        return request._joined + request.output - request.emitted

    def _emitted(self, request: Request) -> int:
        """Tokens the request has got so far."""
        return request.emitted + (self._steps - request._joined if request in self._decoding else 0)

    def _complete(self, request: Request, step: Step) -> None:
        emitted = self._emitted(request)
        known = request.prompt + emitted - 1  # the last token's KV is never computed
        self.store.fill(
            request.held, request.hbm_space, request.full, request.prompt // self.block, known // self.block
        )
        self._leave(request)
        request.state = "finished"
        request.finish_s = self.now_s
        step.finished.append(request)

    def _leave(self, request: Request) -> None:
        """Give back seat and blocks, in whatever state the request is."""
        emitted = self._emitted(request)
        if request in self._decoding:
            del self._decoding[request]
            self._kv -= request.prompt + emitted
        elif request in self._prefilling:
            self._prefilling.remove(request)
        self._running.pop(request, None)
        self._loading.pop(request, None)
        self._full = False
        request.emitted = emitted
        request.coming = 0
        self.store.unreserve(request.blocks - sum(end - first for _, first, end in request.held))
        self.store.release(request.held)
        request.held = []
        request.blocks = 0
