"""Turns exchanges into a trace: understands, redacts, groups, writes. One call of `take` an exchange, in order of end."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.errors import InputError
from loadgen.record.apis.base import Prompt, Reply
from loadgen.record.blocks import BlockIndex
from loadgen.record.exchange import Exchange, Ready
from loadgen.record.figures import Figures, PerfectCache, SessionFigures
from loadgen.record.grouping import Asked, Grouper, Place
from loadgen.record.headers import first
from loadgen.record.hints import gap_kind
from loadgen.record.identity import Identity, identify, retry_count, utility
from loadgen.record.journal import Journal, Line, line_of, seconds
from loadgen.record.nonce import normalise
from loadgen.record.reading import read
from loadgen.record.redact import Redactor
from loadgen.record.store import Entry, MessageStore
from loadgen.tokens.base import Tokenizer
from loadgen.trace.model import Gap, Message, Parent, Seen, Session, Turn
from loadgen.trace.writer import TraceWriter

BLOB_CHARACTERS = 2048
"""A longer text stands in the trace once, as a blob: a rewritten history costs references, not bodies."""

_REMEMBER_RESPONSES = 1024
_TAGGED_PATHS = {"/count_tokens": "count_tokens", "/responses/compact": "compaction"}
_ENDED_AS = {"client_abort": "aborted", "upstream_abort": "truncated", "cut": "aborted"}


class Limits(msgspec.Struct, kw_only=True):
    max_bytes: int | None = None
    hash_only: bool = False


class Scribe:
    """Owns everything that is known of a recording. `say` is told, once each, what a person must know at once."""

    def __init__(
        self,
        *,
        writer: TraceWriter,
        journal: Journal,
        tokenizer: Tokenizer,
        redactor: Redactor,
        ready: Ready,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        self.figures = Figures()
        self.stopped: str | None = None  # why nothing more is written
        self._writer = writer
        self._journal = journal
        self._redactor = redactor
        self._store = MessageStore(
            tokenizer, None if limits.hash_only else redactor, keep_ids=limits.hash_only
        )
        self._limits = limits
        self._say = say
        self._start_ns = ready.mono_ns
        self._grouper = Grouper()
        self._cache = PerfectCache()
        self._blocks = BlockIndex() if limits.hash_only else None
        self._written: list[str] = []  # sessions
        self._scale_said = False
        self._continued: OrderedDict[str, list[Entry]] = OrderedDict()  # by response id

    def take(self, exchange: Exchange) -> None:
        """Record one exchange. Never raises for what client or upstream sent, nor for a full disk."""
        self.figures.calls += 1
        self._redactor.learn(exchange.request_headers)
        self._redactor.learn(exchange.response_headers)
        self._tell_scale(exchange)
        call = read(exchange)
        line = line_of(exchange, call, self._redactor, self._start_ns, content=not self._limits.hash_only)
        if call.problems:
            self.figures.unread += 1
        if exchange.ending == "upstream_unreachable" or (exchange.status or 0) >= 400:
            self.figures.failed += 1
        line.tags += [tag for ending, tag in _TAGGED_PATHS.items() if call.path.endswith(ending)]
        identity = identify(exchange.request_headers, call.body)
        line.rule = identity.rule
        if identity.conversation:
            line.conversation = self._redactor.pseudonym(identity.conversation)
        if identity.kind:
            line.tags.append(identity.kind)
        try:
            if call.prompt is not None and _worked_on(exchange):
                self._turn(exchange, call.prompt, call.reply or Reply(), identity, line)
        except InputError as error:
            if isinstance(error.__context__, OSError):
                self._stop(str(error))
            else:  # the writer refuses this record; the next may be better
                self.figures.unread += 1
                line.problems.append(f"not recorded: {error}")
        except Exception as error:  # noqa: BLE001 - no request may end the recording, or cut off the agents behind it
            self.figures.unread += 1
            line.problems.append(f"internal error, not recorded: {type(error).__name__}")
        self._write_line(line)
        self.figures.tags.update(line.tags)

    def end(self) -> None:
        """Close every session."""
        if self.stopped is None:
            try:
                for session in self._written:
                    self._writer.end(session)
            except InputError as error:
                self._stop(str(error))

    def lost(self, exchanges: int) -> None:
        self.figures.lost += exchanges
        self._say(f"{exchanges} calls passed unrecorded: the recorder was too far behind")

    def _tell_scale(self, exchange: Exchange) -> None:
        scale = first(exchange.response_headers, "x-loadgen-time-scale")
        if scale is not None and not self._scale_said:
            self._scale_said = True
            if scale not in ("1", "1.0"):
                self._say(
                    f"upstream is simulated, {scale[:12]} times real time; recorded times are of this clock"
                )

    # one turn

    def _turn(self, exchange: Exchange, prompt: Prompt, reply: Reply, identity: Identity, line: Line) -> None:
        line.problems += prompt.notes
        system, line.nonce = normalise(prompt.system)
        head = self._store.head(system, prompt.tools)
        entries = self._history(prompt, line) + [self._store.entry(message) for message in prompt.messages]
        if not entries:
            line.problems.append("a prompt without messages is no turn")
            return
        answer = self._store.entry(reply.message) if reply.message is not None else None
        asked = Asked(
            identity=identity,
            prefix=head.key,
            keys=[entry.key for entry in entries],
            gists=frozenset(entry.gist for entry in entries if entry.gist),
            messages=[entry.message for entry in entries],
            start_ns=exchange.received_ns,
            end_ns=exchange.end_ns,
            retry=retry_count(exchange.request_headers),
            utility=utility(prompt.model, prompt.system, bool(prompt.tools), prompt.max_tokens, identity),
            answered=exchange.ending in ("complete", "client_abort") and reply.finished,
        )
        place = self._grouper.place(asked)
        if reply.response_id and line.api == "responses":
            self._remember(reply.response_id, [*entries, *([answer] if answer else [])])
        try:
            turn = self._write(exchange, reply, place, asked, head, entries, answer, line)
        except Exception:
            self._grouper.forget(place.chain)  # the file lacks this turn: what follows begins another session
            raise
        self._grouper.answered(place, asked, answer)
        self._describe(line, place, asked, reply)
        self._count(place, prompt, turn, [head, *entries], answer, line)

    def _history(self, prompt: Prompt, line: Line) -> list[Entry]:
        if prompt.previous is None:
            return []
        known = self._continued.get(prompt.previous)
        if known is None:
            line.problems.append("continues a response that was not recorded: the prompt is incomplete")
            return []
        return known

    def _remember(self, response_id: str, entries: list[Entry]) -> None:
        self._continued[response_id] = entries
        while len(self._continued) > _REMEMBER_RESPONSES:
            self._continued.popitem(last=False)

    def _write(
        self,
        exchange: Exchange,
        reply: Reply,
        place: Place,
        asked: Asked,
        head: Entry,
        entries: list[Entry],
        answer: Entry | None,
        line: Line,
    ) -> Turn:
        turn = Turn(
            session=place.chain.id,
            index=place.index,
            attempt=place.attempt,
            stop=_stop(exchange, reply),
            seen=self._seen(exchange, reply),
            gap=self._gap(place, asked),
        )
        self._usage(turn, reply, line)
        if self._full():
            return turn
        if place.index == 0 and place.attempt == 1:
            self._write_session(place, asked, head)
        repeated = place.attempt > 1
        if self._blocks is not None:
            if not repeated:
                turn.blocks, turn.input_tokens = self._blocks.add(
                    turn.session,
                    turn.index,
                    [entry.ids for entry in (head, *entries)],
                    answer.ids if answer else array("I"),
                    turn.output_tokens or 0,
                )
            turn.cached_tokens = turn.reasoning_tokens = None  # of upstream's own count, which differs
        else:
            if not repeated:
                turn.keep = place.keep
                turn.append = [self._stored(entry.message) for entry in entries[place.append_from :]]
            turn.answer = self._stored(answer.message) if answer else None
        self._writer.turn(turn)
        return turn

    def _write_session(self, place: Place, asked: Asked, head: Entry) -> None:
        parent = place.chain.parent
        system, tools = head.message["content"], head.message["tools"]
        content = not self._limits.hash_only
        self._writer.session(
            Session(
                id=place.chain.id,
                agent=place.chain.agent,
                start_s=seconds(self._start_ns, asked.start_ns) or 0.0,
                parent=Parent(
                    session=parent.id,
                    turn=place.chain.parent_turn,
                    call_id=place.call_id if content else None,
                    wait=place.wait,
                )
                if parent is not None
                else None,
                system=self._writer.json_blob(system) if system and content else None,
                tools=self._writer.json_blob(tools) if tools and content else None,
            )
        )
        self._written.append(place.chain.id)

    def _stored(self, message: Message) -> Message:
        content = message.get("content")
        if isinstance(content, str) and len(content) >= BLOB_CHARACTERS:
            return message | {"content": {"blob": self._writer.json_blob(content)}}
        return message

    def _gap(self, place: Place, asked: Asked) -> Gap | None:
        if place.since_ns is None or (place.index == 0 and place.chain.parent is None):
            return None
        seconds = max(asked.start_ns - place.since_ns, 0) / 1e9
        if place.relation in ("subagent", "fork", "attempt"):
            return Gap("tool", seconds)
        return Gap(gap_kind(asked.messages, seconds), seconds)

    def _seen(self, exchange: Exchange, reply: Reply) -> Seen:
        return Seen(
            ttft_s=seconds(exchange.received_ns, reply.first_token_ns),
            e2e_s=seconds(exchange.received_ns, exchange.end_ns),
            first_text_s=seconds(exchange.received_ns, reply.first_text_ns),
            added_s=exchange.added_ns / 1e9,
        )

    def _usage(self, turn: Turn, reply: Reply, line: Line) -> None:
        """Token counts as upstream reported them, those that cannot be left out and said."""
        turn.input_tokens, turn.output_tokens = _count(reply.input_tokens), _count(reply.output_tokens)
        turn.cached_tokens, turn.reasoning_tokens = (
            _count(reply.cached_tokens),
            _count(reply.reasoning_tokens),
        )
        if turn.cached_tokens is not None and turn.cached_tokens > (turn.input_tokens or 0):
            line.problems.append(f"cached_tokens {turn.cached_tokens} of {turn.input_tokens}: left out")
            turn.cached_tokens = None
        if turn.reasoning_tokens is not None and turn.reasoning_tokens > (turn.output_tokens or 0):
            line.problems.append(
                f"reasoning_tokens {turn.reasoning_tokens} of {turn.output_tokens}: left out"
            )
            turn.reasoning_tokens = None

    # what is told

    def _describe(self, line: Line, place: Place, asked: Asked, reply: Reply) -> None:
        line.session, line.turn, line.attempt = place.chain.id, place.index, place.attempt
        line.relation = place.relation
        if asked.utility:
            line.tags.append(f"utility:{asked.utility}")
        if place.relation in ("compaction", "rewind", "fork", "subagent", "prefix_changed"):
            line.tags.append(place.relation)
        start_ns = asked.start_ns
        line.first_token_s = seconds(start_ns, reply.first_token_ns)
        line.first_text_s = seconds(start_ns, reply.first_text_ns)

    def _count(
        self, place: Place, prompt: Prompt, turn: Turn, entries: list[Entry], answer: Entry | None, line: Line
    ) -> None:
        figures = self.figures
        tokens, hit = self._cache.add(entries, answer)
        figures.turns += 1
        figures.prompt_tokens += tokens
        figures.hit_tokens += hit
        figures.output_tokens += turn.output_tokens or 0
        figures.aborted += turn.stop in _ENDED_AS.values()
        session = figures.sessions.setdefault(
            place.chain.id,
            SessionFigures(
                id=place.chain.id, agent=place.chain.agent, model=self._redactor.text(prompt.model)
            ),
        )
        session.turns += 1
        session.prompt_tokens = tokens
        session.output_tokens += turn.output_tokens or 0
        session.ttft_s = turn.seen.ttft_s if turn.seen else None
        session.last_s = line.t_s + line.end_s

    # what ends the writing

    def _write_line(self, line: Line) -> None:
        if self.stopped is None:
            try:
                self._journal.write(line)
            except OSError as error:
                self._stop(f"{error.strerror or error}")

    def _full(self) -> bool:
        limit = self._limits.max_bytes
        if self.stopped is None and limit is not None and self.size >= limit:
            self._stop(f"--max-size reached ({limit} bytes)")
        return self.stopped is not None

    @property
    def size(self) -> int:
        """Bytes written: trace and list of calls."""
        return self._writer.path.stat().st_size + self._journal.size

    @property
    def secrets_replaced(self) -> int:
        return self._redactor.found

    def _stop(self, why: str) -> None:
        if self.stopped is None:
            self.stopped = why
            self._say(f"recording stopped: {why}; calls are still forwarded")


def _worked_on(exchange: Exchange) -> bool:
    """Whether the model had this prompt: not when HTTP refused it or when nothing was reached."""
    if exchange.ending in ("refused", "upstream_unreachable"):
        return False
    return exchange.status is None or exchange.status < 400


def _stop(exchange: Exchange, reply: Reply) -> str | None:
    """Why the answer ended. A client that closes on the last event, before the connection is finished, has aborted nothing."""
    if exchange.ending == "client_abort" and reply.finished and reply.stop:
        return reply.stop
    return _ENDED_AS.get(exchange.ending) or reply.stop or ("error" if reply.error else None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**53 else None
