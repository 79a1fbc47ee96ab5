"""Everything that is done before the load: ask the endpoint, make the workload, work out what to expect of every turn.

Runs in a process of its own without gevent (`loadgen run`, or `loadgen prepare` for a bare `locust -f`), and ends in
a `Job`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen import tokens
from loadgen.corpus.context import load_set
from loadgen.errors import InputError
from loadgen.measure.probes import fingerprint as server_fingerprint
from loadgen.measure.probes import server as server_probe
from loadgen.replay import nonce, plan, schedule
from loadgen.replay.content import Contents, blob_ref
from loadgen.replay.endpoint import Api, Facts, api_key, discover
from loadgen.replay.job import Job, PlannedSession, PlannedTurn
from loadgen.replay.options import Options
from loadgen.replay.rendering import Renderer, agree, remembering
from loadgen.replay.wire.target import Target
from loadgen.replay.workload import DEFAULT_OUTPUT, trace_path
from loadgen.tokens.base import Tokenizer
from loadgen.tokens.endpoint import NAME as ENDPOINT
from loadgen.tokens.endpoint import EndpointTokenizer
from loadgen.tokens.template import Template, common_prefix, has_content
from loadgen.trace.model import Message, Session, Turn
from loadgen.trace.reader import TraceFile, open_trace

CONTEXTS_FORMAT = "loadgen-contexts"
# Code, prose, numbers and a run of spaces: what tokenizers differ in.
_PROBE_TEXT = "def probe(x: int) -> str:\n    return f'{x:>12,}'  # naïve – 12345 678901\n\n\nThe quick brown fox\t…\n"


@dataclass
class Prepared:
    """A job, and what a person should be told before it runs."""

    job: Job
    facts: Facts
    fingerprint: dict[str, Any]
    workload: dict[str, Any]
    template: dict[str, Any]
    notes: list[str]


def prepare(options: Options, host: str) -> Prepared:
    """Raises InputError for anything that would make the run's numbers worthless or unsafe."""
    api = Api(Target.parse(host), api_key(options.api_key_env))
    facts = discover(api, options.model)
    renderer = Renderer(api, facts.model)
    notes: list[str] = []
    tokenizer = _tokenizer(options, renderer, notes)
    path = trace_path(options, tokenizer)
    with open_trace(path) as trace:
        named = trace.header.tokenizer
        if tokenizer is None and named == ENDPOINT and renderer.available:
            tokenizer = EndpointTokenizer(renderer.text, renderer.detokenized)
        elif tokenizer is None and named and named != ENDPOINT and trace.header.source is not None and trace.header.source.format == CONTEXTS_FORMAT:
            tokenizer = _matching(named, renderer, notes)  # its texts were cut to size with this very tokenizer
        planner = _Planner(options, trace, renderer, tokenizer, notes)
        sessions = planner.sessions()
        counters = server_probe.parse(facts.metrics) if facts.metrics else None
        found = server_fingerprint.fingerprint(counters, facts.models_json, {"version": facts.version}) if counters else {}
        capacity = counters.cache.get("block_size") if counters else None
        job = Job(
            url=api.url,
            model=facts.model,
            api=options.api,
            api_key_env=options.api_key_env,
            time_scale=facts.time_scale,
            trace=str(path.resolve()),
            trace_sha256=trace.sha256,
            schedule=schedule.describe(options),
            answers=options.answers,
            natural_output=options.natural_output,
            seed=options.seed,
            timeouts_s=(options.first_token_timeout, options.stall_timeout, options.turn_timeout),
            isolate=facts.metrics is not None and schedule.isolates(options),
            block_size=int(capacity) if capacity and capacity.isdigit() else None,
            nonce_form=planner.nonce_form,
            sessions=sessions,
            experiment=options.experiment,
            arm=options.arm,
            rep=options.rep,
        )
        schedule.plan_arrivals(options, job, trace)
        _guard(options, api, facts, job)
        workload = {
            "name": trace.header.name,
            "trace": str(path),
            "trace_sha256": trace.sha256,
            "fidelity": trace.header.fidelity,
            "tokenizer": tokenizer.name if tokenizer else (ENDPOINT if renderer.available else None),
            "tokenizer_fingerprint": tokenizer.fingerprint if tokenizer else None,
        }
    return Prepared(job, facts, found, workload, planner.template_facts(), notes)


def _tokenizer(options: Options, renderer: Renderer, notes: list[str]) -> Tokenizer | None:
    """The tokenizer that counts as the endpoint does. None: the trace names its own, or nothing tells."""
    if options.trace and not options.tokenizer:
        return None
    if options.contexts and not options.tokenizer:
        name = load_set(Path(options.contexts)).tokenizer
        return EndpointTokenizer(renderer.text, renderer.detokenized) if name == ENDPOINT else _matching(name, renderer, notes)
    if options.tokenizer == ENDPOINT:
        if not renderer.available:
            raise InputError("--tokenizer server needs an endpoint with /tokenize, and this one has none")
        return EndpointTokenizer(renderer.text, renderer.detokenized)
    if options.tokenizer is None and renderer.available:
        local = tokens.get()
        if agree(local, renderer, _PROBE_TEXT)[0]:
            return local
        notes.append("the endpoint's tokenizer is not Tekken: texts are counted by the endpoint itself (/tokenize)")
        return EndpointTokenizer(renderer.text, renderer.detokenized)
    return _matching(options.tokenizer or tokens.DEFAULT, renderer, notes)


def _matching(name: str, renderer: Renderer, notes: list[str]) -> Tokenizer:
    """The local tokenizer of that name. Raises InputError when the endpoint counts differently."""
    tokenizer = tokens.get(name)
    if not renderer.available:
        notes.append(f"the endpoint has no /tokenize: token counts are those of {name} and not proven for its model")
        return tokenizer
    same, local, remote = agree(tokenizer, renderer, _PROBE_TEXT)
    if not same:
        raise InputError(
            f"the tokenizer {name} is not the endpoint's: a probe text has {local} tokens by {name} and {remote} at the endpoint; "
            "name the model's own with --tokenizer, or let the endpoint count with --tokenizer server"
        )
    return tokenizer


class _Planner:
    """Works out every turn of the sessions that are played."""

    def __init__(
        self, options: Options, trace: TraceFile, renderer: Renderer, tokenizer: Tokenizer | None, notes: list[str]
    ) -> None:
        self._options, self._trace, self._renderer, self._notes = options, trace, renderer, notes
        if trace.header.fidelity in ("blocks", "lengths"):
            raise InputError(
                f"{trace.path} holds no content (fidelity {trace.header.fidelity}); fill it first with `loadgen trace fill`"
            )
        self._contents = Contents(trace)
        self._count: Callable[[str], int] | None = None
        if tokenizer is not None:
            self._count = remembering(tokenizer.count)
        elif renderer.available:
            self._count = remembering(lambda text: len(renderer.text(text)))
        self.nonce_form: nonce.Form = "plain"
        self.nonce_tokens: int | None = None
        self.floor = 0
        self._sample_nonce = ""
        self._prove_nonce()
        self._template = Template(renderer.prompt, self._count) if renderer.available and self._count else None
        self._counter = (
            plan.ContentCounter(
                self._contents, self._count, tokenizer.fingerprint if tokenizer else None, self._sample_nonce
            )
            if self._count
            else None
        )
        self._moves = False
        self._rendered_tokens = 0

    def template_facts(self) -> dict[str, Any]:
        """What `run.json` says of the template and the nonce."""
        return {
            "source": "tokenize" if self._template else None,
            "renderings": self._template.renderings if self._template else 0,
            "moves_earlier_tokens": self._moves,
            "nonce_form": self.nonce_form,
            "nonce_tokens": self.nonce_tokens,
            "nonce_position": self.floor,
        }

    def _prove_nonce(self) -> None:
        if self._options.nonce_scope == "none" or self._count is None:
            self._sample_nonce = nonce.line("plain", nonce.digits("sample")) if self._options.nonce_scope != "none" else ""
            return
        proven = nonce.prove(self._count)
        if proven is None:
            self._notes.append("the length of the nonce depends on its digits with this tokenizer: prompts may drift by a few tokens")
        else:
            self.nonce_form, self.nonce_tokens = proven
        self._sample_nonce = nonce.line(self.nonce_form, nonce.digits("sample"))
        if self._renderer.available:
            first, second = (
                self._renderer.prompt([{"role": "user", "content": text + "x"}], None)
                for text in (nonce.line(self.nonce_form, "0" * nonce.DIGITS), nonce.line(self.nonce_form, "9" * nonce.DIGITS))
            )
            self.floor = common_prefix(first, second)

    def sessions(self) -> list[PlannedSession]:
        """The sessions to play, in trace order, each with the children that belong to it."""
        chosen = self._chosen()
        by_id = {session.id: self._session(session) for session in chosen}
        for session in chosen:
            if session.parent is not None and session.parent.session in by_id:
                by_id[session.id].child = True
                by_id[session.parent.session].children.append((session.id, session.parent.turn, session.parent.wait))
        return list(by_id.values())

    def _chosen(self) -> list[Session]:
        """The first `--sessions` root sessions and all that descends from them."""
        wanted = self._options.sessions
        kept: dict[str, Session] = {}
        roots = 0
        known = {session.id for session in self._trace.sessions}
        for session in self._trace.sessions:
            if session.parent is not None and session.parent.session in known:
                continue
            if wanted is None or roots < wanted:
                kept[session.id] = session
                roots += 1
        if wanted is not None and roots < wanted:
            raise InputError(f"{self._trace.path} holds {roots} sessions, fewer than --sessions {wanted}")
        grown = True
        while grown:
            more = [
                s for s in self._trace.sessions if s.id not in kept and s.parent is not None and s.parent.session in kept
            ]
            grown = bool(more)
            kept |= {s.id: s for s in more}
        return [session for session in self._trace.sessions if session.id in kept]

    def _session(self, session: Session) -> PlannedSession:
        turns = self._trace.turns(session.id)
        limit = self._options.turns
        if limit is not None:
            turns = [turn for turn in turns if turn.index < limit]
        for ref in {ref for turn in turns for message in turn.append or () if (ref := blob_ref(message))}:
            self._contents.prepare_fragment(ref)
        expected = self._expected(session, turns)
        return PlannedSession(
            id=session.id,
            nonce_key=self._nonce_key(session),
            agent=session.agent,
            turns=[self._turn(turn, found) for turn, found in zip(turns, expected, strict=True)],
        )

    def _nonce_key(self, session: Session) -> str:
        scope = self._options.nonce_scope
        if scope == "none":
            return ""
        if scope == "run":
            return "run"
        if scope == "group" and session.group:
            return f"group {session.group}"
        if scope in ("family", "group"):
            root = session
            by_id = {s.id: s for s in self._trace.sessions}
            while root.parent is not None and root.parent.session in by_id:
                root = by_id[root.parent.session]
            return f"session {root.id}"
        return f"session {session.id}"

    def _expected(self, session: Session, turns: list[Turn]) -> list[plan.Expected]:
        if self._counter is None:
            return [plan.Expected(None, None) for _ in turns]
        nonced = self._options.nonce_scope != "none"
        walk = plan.SessionPrompts(session, self._contents, self._counter, nonce=nonced)
        prompts = [walk.next(turn) for turn in turns]
        live = self._options.answers == "live"
        if self._template is None:
            # Contents alone: a lower bound of the prompt, and no proof. Good for the class of a turn, not for a target.
            return [
                plan.Expected(None, sum(plan.filled(prompt, same)) if i else 0) for i, (prompt, same) in enumerate(prompts)
            ]
        found = None if self._moves else plan.expect_by_form(self._template, prompts, walk.tools)
        if found is not None and prompts and not self._rendered_tokens:
            self._verify(session, prompts[min(1, len(prompts) - 1)][0], found[min(1, len(prompts) - 1)], walk.tools, nonced)
        if found is None:
            found = self._render_all(prompts, walk.tools, nonced)
        if live:  # what the server will say is not known
            found = [e if i == 0 else plan.Expected(None, e.reuse) for i, e in enumerate(found)]
        return found

    def _texts(self, nonced: bool) -> Callable[[list[Message]], list[Message]]:
        """Puts real contents, and a nonce of the right length, into messages."""

        def fill(messages: list[Message]) -> list[Message]:
            out = []
            for i, message in enumerate(messages):
                if has_content(message):
                    ref = blob_ref(message)
                    text = self._contents.text(ref) if ref else plan.plain_text(message)
                    message = {**message, "content": (self._sample_nonce if nonced and i == 0 else "") + text}
                out.append(message)
            return out

        return fill

    def _verify(self, session: Session, prompt: plan.Prompt, expected: plan.Expected, tools: Any, nonced: bool) -> None:
        """Render one real prompt in full: what was added up from parts must be what the server counts."""
        real = len(self._renderer.prompt(self._texts(nonced)(prompt.messages), tools))
        self._rendered_tokens += real
        if real != expected.target_tokens:
            raise InputError(
                f"a prompt of session {session.id} has {real} tokens at the endpoint and {expected.target_tokens} by its parts; "
                "the contents were made for another tokenizer or the chat template changes them. "
                "Build the contexts with the model's own tokenizer (--tokenizer)"
            )

    def _render_all(self, prompts: list[tuple[plan.Prompt, int]], tools: Any, nonced: bool) -> list[plan.Expected]:
        if not self._moves:
            self._moves = True
            self._notes.append(
                "the chat template moves earlier tokens or depends on the contents: a prompt's start is not the next one's, "
                "so every prompt was rendered in full to know its reuse"
            )
        self._rendered_tokens += sum(sum(prompt.contents) for prompt, _ in prompts)
        if self._rendered_tokens > plan.FULL_RENDERING_LIMIT:
            return [plan.Expected(None, None) for _ in prompts]
        return plan.expect_by_rendering(self._renderer.prompt, self._texts(nonced), prompts, tools)

    def _turn(self, turn: Turn, expected: plan.Expected) -> PlannedTurn:
        options = self._options
        gap = 0.0
        kind = ""
        if turn.gap is not None and options.schedule != "sweep":
            cap = options.tool_gap_cap if turn.gap.kind == "tool" else options.human_gap_cap
            gap = turn.gap.s * options.gap_scale
            gap = gap if cap is None else min(gap, cap)
            kind = turn.gap.kind
        output = options.output_tokens or turn.output_tokens or DEFAULT_OUTPUT
        return PlannedTurn(
            index=turn.index,
            attempt=turn.attempt,
            klass=plan.classify(turn, expected, self.floor),
            target_tokens=expected.target_tokens,
            expected_reuse=expected.reuse,
            output_tokens=None if options.natural_output and not options.output_tokens else output,
            gap_s=gap,
            gap_kind=kind,
            aborted=turn.stop == "aborted",
        )


def _guard(options: Options, api: Api, facts: Facts, job: Job) -> None:
    """Refuse what cannot fit or would cost somebody money by accident."""
    if not job.turns:
        raise InputError(f"{job.trace} holds no turn to play")
    if facts.max_model_len is not None:
        for session in job.sessions:
            for turn in session.turns:
                need = (turn.target_tokens or 0) + (turn.output_tokens or 1)
                if need > facts.max_model_len:
                    raise InputError(
                        f"turn {turn.index} of session {session.id} needs {need} tokens and {facts.model} takes {facts.max_model_len}; "
                        "use shorter contexts (--context-tokens) or fewer turns (--turns)"
                    )
    planned = job.prompt_tokens
    if options.max_prompt_tokens is not None and planned is not None and planned > options.max_prompt_tokens:
        raise InputError(f"the run would send {planned:,} prompt tokens, more than --max-prompt-tokens {options.max_prompt_tokens:,}")
    if not api.local and not options.yes and options.max_prompt_tokens is None:
        size = f"{planned:,}" if planned is not None else "an unknown number of"
        raise InputError(
            f"{api.url} is not on this machine or a private network, and the run would send {size} prompt tokens to it; "
            "say --yes, or set --max-prompt-tokens"
        )
