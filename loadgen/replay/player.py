"""Plays the turns of one session and turns what was seen into samples.

A `SessionPlayer` holds a session's transcript and connection. It knows the wire and the sample, and nothing of
Locust, of other sessions or of the schedule: who calls it decides when.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import gevent
import orjson

from loadgen.measure.sample import ErrorClass, Sample, Tiers, TurnClass
from loadgen.replay import nonce
from loadgen.replay.content import Contents
from loadgen.replay.job import Job, PlannedSession, PlannedTurn
from loadgen.replay.tokenized import TokenTranscript
from loadgen.replay.transcript import Transcript
from loadgen.replay.turnstile import Turnstile
from loadgen.replay.wire.api import Api, Output
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.target import Target
from loadgen.trace.model import Message, Session, Turn

_CONNECT_TIMEOUT_S = 10.0
ABORTED = "aborted"  # `finish` of a turn that was cut because its recorded one was


class Link(Protocol):
    """A connection of either client."""

    interrupted: Exchange | None

    def exchange(self, request: Request, timeouts: Timeouts) -> Exchange: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Settings:
    """What all sessions of one worker share."""

    job: Job
    worker: str
    targets: list[Target]
    api: Api
    contents: Contents
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None
    emit: Callable[[PlannedSession, Sample], None]
    tiers_of: Callable[[Exchange], Tiers | None]  # None for a turn that was not alone in flight
    ending: Callable[[], bool]  # whether the run is being ended, and not a lane alone
    turnstile: Turnstile


def timeouts(job: Job) -> Timeouts:
    """The job's limits, which are endpoint seconds, in wall seconds."""
    first, stall, total = (limit / job.time_scale for limit in job.timeouts_s)
    return Timeouts(first_token_s=first, stall_s=stall, total_s=total)


def _as_planned(exchange: Exchange) -> None:
    """A turn that was cut on purpose has not failed."""
    exchange.error, exchange.message, exchange.finish = None, None, ABORTED


class SessionPlayer:
    """One session under way. `records` are the trace's turns, the `plan.lead` that are not sent included.

    `skip` of the planned turns were played before the run was resumed: they are in the prompt and not sent again.
    """

    def __init__(
        self, settings: Settings, number: int, session: Session, records: list[Turn], *, skip: int = 0
    ) -> None:
        job = settings.job
        self.plan = job.sessions[number]
        self.cut = False
        # An id may hold anything, a header may not.
        self._header_id = quote(self.plan.id, safe="~!*'()")[:200]
        self._settings = settings
        self._records = records
        self._timeouts = timeouts(job)
        self._target = settings.targets[self.plan.endpoint]
        self._link = _connect(settings, self._target)
        self._nonce = job.nonce(self.plan.nonce_key)
        self._transcript: Transcript | TokenTranscript
        if job.api == "completions":
            self._transcript = TokenTranscript(job, number)
            self._tools = None
        else:
            contents = settings.contents
            tools = contents.value(session.tools)
            in_tools = self.plan.nonce_in_tools
            self._transcript = Transcript(
                contents,
                settings.api.message,
                system=contents.value(session.system),
                nonce="" if in_tools else self._nonce,
            )
            if in_tools:
                tools = nonce.into_tools(tools, self._nonce)
            self._tools = orjson.dumps(tools) if tools else None
        self._previous_prompt: int | None = None  # tokens, as the server counted them
        self._position = skip
        for record in records[: self.plan.lead + skip]:
            self._transcript.advance(record)
            self._recorded_answer(record)

    @property
    def left(self) -> int:
        """Turns still to play."""
        return len(self.plan.turns) - self._position

    @property
    def upcoming(self) -> PlannedTurn:
        return self.plan.turns[self._position]

    def play(self, intended_ns: int, cap_wait_ns: int = 0) -> int:
        """Play the next turn now; returns when it ended (ns). The caller waits until `intended_ns`.

        A turn whose kept-alive connection turns out closed before the server read anything is sent once more; both
        attempts are samples.
        """
        self._settings.turnstile.enter()
        turn = self.plan.turns[self._position]
        record = self._records[self.plan.lead + self._position]
        self._position += 1
        self._transcript.advance(record)
        head, tail = self._settings.api.envelope(
            self._settings.job.model, self._output(turn), system=self._transcript.system, tools=self._tools
        )
        parts = self._transcript.body(head, tail)
        attempt = turn.attempt
        while True:
            try:
                exchange = self._exchange(parts, turn, attempt)
            except gevent.GreenletExit:
                if (seen := self._link.interrupted) is not None:  # the server got it, so it is a sample
                    if (
                        not self._settings.ending()
                    ):  # its lane was taken away: fewer live sessions were asked for
                        _as_planned(seen)
                    self._settings.emit(
                        self.plan, self._sample(turn, attempt, intended_ns, cap_wait_ns, seen)
                    )
                raise
            try:
                self._settings.turnstile.enter()
            finally:  # whoever is killed in the line has a turn that is over
                self._settings.emit(
                    self.plan, self._sample(turn, attempt, intended_ns, cap_wait_ns, exchange)
                )
            if not exchange.stale or attempt > turn.attempt:
                break
            attempt = 1 + max(other.attempt for other in self.plan.turns if other.index == turn.index)
        self._answer(record, exchange)
        return exchange.end_ns

    def abort(self) -> None:
        """Cut the turn that is under way, if any."""
        self._link.abort()

    def close(self) -> None:
        self._link.close()

    def _output(self, turn: PlannedTurn) -> Output:
        job = self._settings.job
        extra: dict[str, Any] = {"cache_salt": self._nonce.strip()} if job.cache_salt and self._nonce else {}
        return Output(
            tokens=turn.output_tokens,
            forced=self._settings.api.FORCES_LENGTH and not job.natural_output,
            seed=job.seed,
            token_ids=job.answers == "tokens",
            extra=extra,
        )

    def _exchange(self, parts: list[bytes | memoryview], turn: PlannedTurn, attempt: int) -> Exchange:
        job = self._settings.job
        collect = job.answers != "recorded"
        headers = [("X-Request-Id", self._request_id(turn, attempt))]
        if job.session_header:
            headers.append((job.session_header, self._header_id))
        request = Request(
            path=self._settings.api.PATH,
            parts=parts,
            headers=headers,
            events=lambda: self._settings.api.events(collect=collect),
        )
        if turn.abort_s is None:
            return self._link.exchange(request, self._timeouts)
        cut = gevent.spawn_later(turn.abort_s / job.time_scale, self._link.abort)
        try:
            exchange = self._link.exchange(request, self._timeouts)
        finally:
            cut.kill(block=False)
        if exchange.error is ErrorClass.CANCELLED:  # as its user did: not a failure
            _as_planned(exchange)
        return exchange

    def _request_id(self, turn: PlannedTurn, attempt: int) -> str:
        return f"{self._settings.job.run[-8:]}-{self._header_id}-{turn.index}-{attempt}"

    def _recorded_answer(self, record: Turn) -> None:
        if isinstance(self._transcript, Transcript):
            self._transcript.set_answer(record.answer)

    def _answer(self, record: Turn, exchange: Exchange) -> None:
        """Decide what the next prompt holds as the assistant's answer."""
        if exchange.usage is not None and exchange.usage.prompt_tokens is not None:
            self._previous_prompt = exchange.usage.prompt_tokens
        answers = self._settings.job.answers
        if answers == "recorded":
            self._recorded_answer(record)
        elif exchange.error is not None or exchange.answer is None:
            self.cut = True
        elif isinstance(self._transcript, TokenTranscript):
            self._transcript.set_answer(exchange.answer.token_ids)
        else:
            message: Message = {"role": "assistant", "content": exchange.answer.text or None}
            if exchange.answer.tool_calls:
                message["tool_calls"] = exchange.answer.tool_calls
            elif not exchange.answer.text:
                message["content"] = exchange.answer.reasoning
            self._transcript.set_answer(message)

    def _sample(
        self, turn: PlannedTurn, attempt: int, intended_ns: int, cap_wait_ns: int, seen: Exchange
    ) -> Sample:
        settings, usage = self._settings, seen.usage
        job = settings.job
        reuse, klass = turn.expected_reuse, turn.klass
        if job.answers == "live" and klass is TurnClass.REUSE and self._previous_prompt is not None:
            reuse = (
                self._previous_prompt
            )  # the recorded answers are not in this prompt: only the server knows its length
        found = settings.tiers_of(seen) if seen.error is None else None
        send_ns = seen.send_ns or max(intended_ns, seen.end_ns)
        fields: dict[str, Any] = {}
        if usage is not None:
            fields = {
                "prompt_tokens": usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens,
                "output_tokens": usage.output_tokens,
            }
        return Sample(
            run=job.run,
            arm=job.arm,
            rep=job.rep,
            session=self.plan.id,
            turn=turn.index,
            attempt=attempt,
            agent=self.plan.agent,
            klass=TurnClass.RETRY if attempt > 1 else klass,
            worker=settings.worker,
            endpoint=self._target.url,
            request_id=self._request_id(turn, attempt),
            intended_ns=intended_ns,
            send_ns=send_ns,
            sent_ns=seen.sent_ns,
            headers_ns=seen.headers_ns,
            first_byte_ns=seen.first_byte_ns,
            first_token_ns=seen.first_token_ns,
            first_text_ns=seen.first_text_ns,
            last_token_ns=seen.last_token_ns,
            end_ns=seen.end_ns,
            clock=seen.clock,
            coalesced=seen.coalesced,
            lag_ns=seen.lag_ns,
            client_delay_ns=seen.client_delay_ns,
            cap_wait_ns=cap_wait_ns,
            connect_ns=seen.connect_ns,
            reused_conn=seen.reused_conn,
            target_tokens=turn.target_tokens,
            expected_reuse=reuse,
            requested_tokens=turn.output_tokens,
            first_event_tokens=seen.first_event_tokens,
            chunks=seen.chunks,
            max_gap_ns=seen.max_gap_ns,
            burst=seen.burst,
            finish=seen.finish,
            error=seen.error,
            message=seen.message,
            tiers=found,
            tier_source="isolated" if found is not None else None,
            **fields,
        )


def _connect(settings: Settings, target: Target) -> Link:
    job = settings.job
    if job.client == "openai":
        from loadgen.replay.wire.openai_client import OpenAIConnection

        return OpenAIConnection(
            target, headers=settings.headers, tls_context=settings.tls, connect_timeout_s=_CONNECT_TIMEOUT_S
        )
    return Connection(
        target,
        headers=settings.headers,
        tls_context=settings.tls,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        proxy=Target.parse(job.proxy) if job.proxy else None,
    )
