"""Which sessions of a trace are played, and what is expected of each of their turns."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.errors import InputError
from loadgen.replay import nonce, plan
from loadgen.replay.content import Contents, blob_ref
from loadgen.replay.copies import copied, free_name
from loadgen.replay.job import PlannedSession, PlannedTurn
from loadgen.replay.options import Options
from loadgen.replay.rendering import Renderer, remembering
from loadgen.replay.sharing import Sent
from loadgen.replay.workload import DEFAULT_OUTPUT
from loadgen.tokens.base import Tokenizer
from loadgen.tokens.template import Template, common_prefix, has_content
from loadgen.trace.model import Message, Session, Turn
from loadgen.trace.reader import TraceFile

_COMPACTED_TO = 1  # messages that stay: the first, which holds the context or the task


class Planner:
    """Works out every turn of the sessions that are played. `notes` collects what a person should know."""

    def __init__(
        self,
        options: Options,
        trace: TraceFile,
        renderer: Renderer,
        tokenizer: Tokenizer | None,
        max_model_len: int | None,
        notes: list[str],
    ) -> None:
        if trace.header.fidelity in ("blocks", "lengths"):
            raise InputError(
                f"{trace.path} holds no content (fidelity {trace.header.fidelity}); fill it first with `loadgen trace fill`"
            )
        self._options, self._trace, self._renderer, self._notes = options, trace, renderer, notes
        self._max_model_len = max_model_len
        self.contents = Contents(trace)
        count: Callable[[str], int] | None = None
        if tokenizer is not None:
            count = remembering(tokenizer.count)
        elif renderer.available:
            count = remembering(lambda text: len(renderer.text(text)))
        self._count = count
        self._nonced = options.nonce_scope != "none"
        self.nonce_form: nonce.Form = "plain"
        self.nonce_tokens: int | None = None
        self.floor = 0
        if self._nonced and count is not None:
            self._prove_nonce(count)
        self._sample_nonce = nonce.line(self.nonce_form, nonce.digits("sample")) if self._nonced else ""
        self._template = Template(renderer.prompt, count) if renderer.available and count else None
        fingerprint = tokenizer.fingerprint if tokenizer else None
        self._counter = (
            plan.ContentCounter(self.contents, count, fingerprint, self._sample_nonce) if count else None
        )
        self._verified = False
        self._moves = False
        self._rendered_tokens = 0
        self._skipped = 0
        self._compacted = 0
        self._tools_first: dict[str, bool] = {}  # by tools' reference
        self._sent = Sent()
        self._by_id = {session.id: session for session in trace.sessions}

    def template_facts(self) -> dict[str, Any]:
        """What `run.json` says of the template and the nonce."""
        return {
            "source": "tokenize" if self._template else None,
            "renderings": self._template.renderings if self._template else 0,
            "moves_earlier_tokens": self._moves,
            "nonce_form": self.nonce_form,
            "nonce_tokens": self.nonce_tokens,
            "nonce_position": self.floor,
            "nonce_in_tools": sum(self._tools_first.values()),
        }

    def sessions(self) -> list[PlannedSession]:
        """Warm-up sessions, then the sessions to play in the order in which they start, then their children."""
        chosen = self._chosen()
        planned = {session.id: self._session(session) for session in chosen}
        for session in chosen:
            if session.parent is not None and session.parent.session in planned:
                planned[session.id].child = True
                planned[session.parent.session].children.append(
                    (session.id, session.parent.turn, session.parent.wait)
                )
        if self._compacted:
            self._notes.append(
                f"{self._compacted} turns begin with a compacted history, since they would not fit the model"
            )
        if self._skipped:
            self._notes.append(
                f"{self._skipped} turns that would not fit the model are left out, with all that follow them"
            )
        out = [
            copy
            for number in range(self._options.copies)
            for copy in copied(list(planned.values()), number, self._by_id)
        ]
        if self._options.copies > 1 and self._options.schedule != "timed":
            random.Random(self._options.seed).shuffle(out)
        played = {s.id for s in out if s.turns}
        orphans = {child for s in out if not s.turns for child, _, _ in s.children}
        for s in out:
            s.children = [entry for entry in s.children if entry[0] in played]
            s.child = s.child and s.id not in orphans  # a parent without a turn starts nobody
        return self._warmups(out) + [s for s in out if s.turns]

    def _prove_nonce(self, count: Callable[[str], int]) -> None:
        proven = nonce.prove(count)
        if proven is None:
            self._notes.append(
                "the length of the nonce depends on its digits with this tokenizer: prompts may drift by a few tokens"
            )
        else:
            self.nonce_form, self.nonce_tokens = proven
        if self._renderer.available:
            self.floor = self._position([{"role": "user", "content": "x"}], None, in_tools=False)

    def _position(self, messages: list[Message], tools: list[Any] | None, *, in_tools: bool) -> int:
        """The first token that differs between two prompts which differ in their nonces only."""
        rendered = []
        for digit in "09":
            line = nonce.line(self.nonce_form, digit * nonce.DIGITS)
            if in_tools and tools:
                rendered.append(self._renderer.prompt(messages, nonce.into_tools(tools, line)))
            else:
                first = {**messages[0], "content": line + str(messages[0].get("content") or "")}
                rendered.append(self._renderer.prompt([first, *messages[1:]], tools))
        return common_prefix(*rendered)

    def _nonce_in_tools(self, session: Session) -> bool:
        """Whether this session's nonce has to go into its tools: the template puts them before all content."""
        if not self._nonced or session.tools is None or not self._renderer.available:
            return False
        known = self._tools_first.get(session.tools)
        if known is None:
            tools = self.contents.value(session.tools)
            messages: list[Message] = [{"role": "user", "content": "x"}]
            if session.system is not None:
                messages.insert(0, {"role": "system", "content": "x"})
            if not tools:
                return False
            in_content = self._position(messages, tools, in_tools=False)
            in_tools = self._position(messages, tools, in_tools=True)
            known = self._tools_first[session.tools] = in_tools < in_content
            self.floor = max(self.floor, min(in_tools, in_content))
        return known

    def _chosen(self) -> list[Session]:
        """`--sessions` root sessions (the first, or drawn by --seed), and all that descends from them."""
        options = self._options
        roots = [s for s in self._trace.sessions if s.parent is None or s.parent.session not in self._by_id]
        if options.shuffle:
            random.Random(options.seed).shuffle(roots)
        if options.sessions is not None:
            if len(roots) < options.sessions:
                raise InputError(
                    f"{self._trace.path} holds {len(roots)} sessions, fewer than --sessions {options.sessions}"
                )
            roots = roots[: options.sessions]
        children: dict[str, list[Session]] = {}
        for session in self._trace.sessions:
            if session.parent is not None:
                children.setdefault(session.parent.session, []).append(session)
        out = list(roots)
        for session in out:  # grows while it is walked: children of children
            out += children.get(session.id, ())
        return out

    def _session(self, session: Session) -> PlannedSession:
        options = self._options
        turns = self._trace.turns(session.id)
        if options.turns is not None:
            turns = [turn for turn in turns if turn.index < options.first_turn + options.turns]
        for ref in {ref for turn in turns for message in turn.append or () if (ref := blob_ref(message))}:
            self.contents.prepare_fragment(ref)
        lead = sum(turn.index < options.first_turn for turn in turns)
        planned, turns = self._fitted(session, turns, lead)
        self._skipped += len(turns) - lead - len(planned)
        return PlannedSession(
            id=session.id,
            record=session.id,
            nonce_key=self._nonce_key(session),
            nonce_in_tools=self._nonce_in_tools(session),
            lead=lead,
            agent=session.agent,
            turns=planned,
        )

    def _fitted(self, session: Session, turns: list[Turn], lead: int) -> tuple[list[PlannedTurn], list[Turn]]:
        """The turns to send, up to the first that cannot be made to fit, and the turns as they are then played."""
        compacted: set[int] = set()
        while True:
            expected = self._expected(session, turns)
            if 0 < lead < len(turns):
                first = min(self.floor, expected[lead].reuse or 0)
                expected[lead] = dataclasses.replace(expected[lead], reuse=first)
            made = [
                self._turn(turn, found) for turn, found in zip(turns[lead:], expected[lead:], strict=True)
            ]
            for position in compacted:
                made[position].keep = _COMPACTED_TO
            over = next((i for i, turn in enumerate(made) if not self._fits(session, turn)), None)
            if over is None:
                self._compacted += len(compacted)
                return made, turns
            if self._options.overflow != "compact" or over in compacted or lead + over == 0:
                self._compacted += len(compacted)
                return made[:over], turns
            compacted.add(over)
            turns = list(turns)
            turns[lead + over] = msgspec.structs.replace(turns[lead + over], keep=_COMPACTED_TO)

    def _fits(self, session: Session, turn: PlannedTurn) -> bool:
        """The context guard. Raises InputError where the user wants such a run refused."""
        need = (turn.target_tokens or 0) + (turn.output_tokens or 1)
        if self._max_model_len is None or need <= self._max_model_len:
            return True
        if self._options.overflow != "refuse":
            return False
        raise InputError(
            f"turn {turn.index} of session {session.id} needs {need} tokens and the model takes {self._max_model_len}; use shorter "
            "contexts (--context-tokens) or fewer turns (--turns), or let loadgen leave such turns out or compact them (--overflow)"
        )

    def _nonce_key(self, session: Session) -> str:
        scope = self._options.nonce_scope
        if scope == "none":
            return ""
        if scope == "run":
            return "run"
        if scope == "group" and session.group:
            return f"group {session.group}"
        root = session
        while scope in ("family", "group") and root.parent is not None and root.parent.session in self._by_id:
            root = self._by_id[root.parent.session]
        return f"session {root.id}"

    def _warmups(self, sessions: list[PlannedSession]) -> list[PlannedSession]:
        """First turns of the run's own sessions, under nonces that the run does not use."""
        able = [session for session in sessions if session.turns and not session.child]
        return [
            PlannedSession(
                id=free_name(f"warmup-{number}", self._by_id),
                record=able[number % len(able)].record,
                nonce_key=f"warmup {number}",
                nonce_in_tools=able[number % len(able)].nonce_in_tools,
                lead=able[number % len(able)].lead,
                turns=able[number % len(able)].turns[:1],
                warmup=True,
            )
            for number in range(self._options.warmup if able else 0)
        ]

    # what to expect

    def _expected(self, session: Session, turns: list[Turn]) -> list[plan.Expected]:
        if self._counter is None:
            return [plan.Expected(None, None) for _ in turns]
        in_tools = self._nonce_in_tools(session)
        walk = plan.SessionPrompts(session, self.contents, self._counter, nonce=self._nonced and not in_tools)
        prompts = [walk.next(turn) for turn in turns]
        tools = nonce.into_tools(walk.tools, self._sample_nonce) if in_tools else walk.tools
        texts = functools.partial(self.texts, nonce_line="" if in_tools else None)
        if self._template is None:
            # Contents alone: less than the prompt has, and no proof. Good for the class of a turn, not for a target.
            return [
                plan.Expected(None, sum(plan.filled(prompt, same)) if i else 0)
                for i, (prompt, same) in enumerate(prompts)
            ]
        found = None if self._moves else plan.expect_by_form(self._template, prompts, tools)
        if found and not self._verified:
            position = min(1, len(found) - 1)
            self._verify(session, texts(prompts[position][0].messages), found[position], tools)
        if found is None:
            found = self._render_all(prompts, texts, tools)
        if self._options.nonce_scope != "session" and found:
            found[0] = self._shared_start(session, tools, prompts[0][0], found[0])
            for prompt, _ in prompts:
                self._sent.add(self._nonce_key(session), tools, prompt.messages)
        if self._options.answers == "live":  # what the server will say is not known
            found = [e if i == 0 else plan.Expected(None, e.reuse) for i, e in enumerate(found)]
        return found

    def _shared_start(
        self, session: Session, tools: list[Any] | None, prompt: plan.Prompt, expected: plan.Expected
    ) -> plan.Expected:
        """A session's first prompt, with what sessions under the same nonce sent before it."""
        earlier = self._sent.longest(self._nonce_key(session), tools, prompt.messages)
        if earlier is None or self._template is None:
            return expected
        messages, same = earlier
        reuse = self._template.shared(messages, prompt.messages, tools, same, plan.filled(prompt, same))
        if reuse is not None and self._count is not None and same < min(len(messages), len(prompt.messages)):
            # The texts where they part may begin alike.
            alike = _common_start(self._text(messages[same]), self._text(prompt.messages[same]))
            reuse += self._count(alike) if alike else 0
        return plan.Expected(expected.target_tokens, max(expected.reuse or 0, reuse or 0))

    def _text(self, message: Message) -> str:
        ref = blob_ref(message)
        return self.contents.text(ref) if ref else plan.plain_text(message) if has_content(message) else ""

    def texts(self, messages: list[Message], nonce_line: str | None = None) -> list[Message]:
        """The messages with real contents, and with a nonce in the first where the run has nonces."""
        front = (self._sample_nonce if nonce_line is None else nonce_line) if self._nonced else ""
        out = []
        for number, message in enumerate(messages):
            if has_content(message):
                message = {**message, "content": (front if number == 0 else "") + self._text(message)}
            out.append(message)
        return out

    def _verify(self, session: Session, messages: list[Message], expected: plan.Expected, tools: Any) -> None:
        """Render one real prompt in full: what was added up from parts must be what the server counts."""
        self._verified = True
        real = len(self._renderer.prompt(messages, tools))
        if real != expected.target_tokens:
            raise InputError(
                f"a prompt of session {session.id} has {real} tokens at the endpoint and {expected.target_tokens} by its parts: "
                "the contents were cut for another tokenizer, or the chat template changes them; "
                "build the contexts with the model's own tokenizer (--tokenizer)"
            )

    def _render_all(
        self,
        prompts: list[tuple[plan.Prompt, int]],
        texts: Callable[[list[Message]], list[Message]],
        tools: Any,
    ) -> list[plan.Expected]:
        if not self._moves:
            self._moves = True
            self._notes.append(
                "the chat template moves earlier tokens or depends on the contents: a prompt's start is not the next one's, "
                "so every prompt was rendered in full to know its reuse"
            )
        self._rendered_tokens += sum(sum(prompt.contents) for prompt, _ in prompts)
        if self._rendered_tokens > plan.FULL_RENDERING_LIMIT:
            return [plan.Expected(None, None) for _ in prompts]
        return plan.expect_by_rendering(self._renderer.prompt, texts, prompts, tools)

    def prompts(
        self, session: PlannedSession, nonce_line: str
    ) -> tuple[list[list[Message]], list[Any] | None, list[Turn]]:
        """The real prompts of a planned session under its nonce, its tools, and the turns themselves."""
        if self._counter is None:
            raise InputError(
                "the completions API needs an endpoint with /tokenize, to render prompts to token ids"
            )
        record = self._by_id[session.record]
        turns = self._trace.turns(session.record)[: session.lead + len(session.turns)]
        walk = plan.SessionPrompts(record, self.contents, self._counter, nonce=self._nonced)
        line = "" if session.nonce_in_tools else nonce_line
        prompts = [self.texts(walk.next(turn)[0].messages, line) for turn in turns]
        tools = nonce.into_tools(walk.tools, nonce_line) if session.nonce_in_tools else walk.tools
        return prompts, tools, turns

    def _turn(self, turn: Turn, expected: plan.Expected) -> PlannedTurn:
        options = self._options
        gap, kind = 0.0, ""
        if turn.gap is not None and options.schedule != "sweep":
            cap = options.tool_gap_cap if turn.gap.kind == "tool" else options.human_gap_cap
            gap = turn.gap.s * options.gap_scale
            gap = gap if cap is None else min(gap, cap)
            kind = turn.gap.kind
        output = options.output_tokens or turn.output_tokens or DEFAULT_OUTPUT
        cut_after = None
        if turn.stop == "aborted" and turn.seen is not None:
            cut_after = turn.seen.e2e_s or turn.seen.ttft_s
        return PlannedTurn(
            index=turn.index,
            attempt=turn.attempt,
            klass=plan.classify(turn, expected, self.floor),
            target_tokens=expected.target_tokens,
            expected_reuse=expected.reuse,
            output_tokens=None if options.natural_output and not options.output_tokens else output,
            gap_s=gap,
            gap_kind=kind,
            abort_s=cut_after,
        )


def _common_start(a: str, b: str) -> str:
    """What two texts begin with alike."""
    end = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:end]
