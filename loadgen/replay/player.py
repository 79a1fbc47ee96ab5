"""Plays the turns of one session and turns what was seen into samples.

A `SessionPlayer` holds a session's transcript and connection. It knows the wire and the sample, and nothing of
Locust, of other sessions or of the schedule: who calls it decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from loadgen.measure.sample import Sample, Tiers, TurnClass
from loadgen.replay.content import Contents
from loadgen.replay.job import Job, PlannedSession, PlannedTurn
from loadgen.replay.transcript import Transcript
from loadgen.replay.wire.api import Api, Output
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.target import Target
from loadgen.trace.model import Message, Session, Turn

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Settings:
    """What all sessions of one worker share."""

    job: Job
    worker: str
    target: Target
    api: Api
    contents: Contents
    headers: tuple[tuple[str, str], ...]
    emit: Callable[[Sample], None]
    tiers_of: Callable[[Exchange], Tiers | None]  # None for a turn that was not alone in flight


def timeouts(job: Job) -> Timeouts:
    """The job's limits, which are endpoint seconds, in wall seconds."""
    first, stall, total = (limit / job.time_scale for limit in job.timeouts_s)
    return Timeouts(first_token_s=first, stall_s=stall, total_s=total)


class SessionPlayer:
    """One session under way. `records` are the trace's turns in the order of the plan's."""

    def __init__(self, settings: Settings, plan: PlannedSession, session: Session, records: list[Turn]) -> None:
        self.plan = plan
        self.cut = False
        self._settings = settings
        self._records = records
        job = settings.job
        self._timeouts = timeouts(job)
        self._connection = Connection(settings.target, headers=settings.headers, connect_timeout_s=_CONNECT_TIMEOUT_S)
        self._transcript = Transcript(
            settings.contents,
            settings.api.message,
            system=settings.contents.value(session.system),
            nonce=job.nonce(plan),
        )
        tools = settings.contents.value(session.tools)
        self._tools = orjson.dumps(tools) if tools else None
        self._previous_prompt: int | None = None  # tokens, as the server counted them

    def play(self, position: int, intended_ns: int) -> int:
        """Play the turn at `position` now; returns when it ended (ns). The caller waits until `intended_ns`.

        A turn whose kept-alive connection turns out closed before the server read anything is sent once more; both
        attempts are samples.
        """
        turn, record = self.plan.turns[position], self._records[position]
        self._transcript.advance(record)
        head, tail = self._settings.api.envelope(
            self._settings.job.model, self._output(turn), tools=self._tools
        )
        parts = self._transcript.body(head, tail)
        attempt = turn.attempt
        while True:
            exchange = self._exchange(parts, turn, attempt)
            self._settings.emit(self._sample(turn, attempt, intended_ns, exchange))
            if not exchange.stale or attempt > turn.attempt:
                break
            attempt += 1
        self._answer(record, exchange)
        return exchange.end_ns

    def abort(self) -> None:
        """Cut the turn that is under way, if any."""
        self._connection.abort()

    def close(self) -> None:
        self._connection.close()

    def _output(self, turn: PlannedTurn) -> Output:
        job = self._settings.job
        return Output(tokens=turn.output_tokens, forced=not job.natural_output, seed=job.seed)

    def _exchange(self, parts: list[bytes | memoryview], turn: PlannedTurn, attempt: int) -> Exchange:
        live = self._settings.job.answers == "live"
        request = Request(
            path=self._settings.api.PATH,
            parts=parts,
            headers=(("X-Request-Id", self._request_id(turn, attempt)),),
            events=lambda: self._settings.api.events(collect=live),
        )
        return self._connection.exchange(request, self._timeouts)

    def _request_id(self, turn: PlannedTurn, attempt: int) -> str:
        return f"{self._settings.job.run[-8:]}-{self.plan.id}-{turn.index}-{attempt}"

    def _answer(self, record: Turn, exchange: Exchange) -> None:
        """Decide what the next prompt holds as the assistant's answer."""
        if exchange.usage is not None and exchange.usage.prompt_tokens is not None:
            self._previous_prompt = exchange.usage.prompt_tokens
        if self._settings.job.answers == "recorded":
            self._transcript.set_answer(record.answer)
        elif exchange.error is not None or exchange.answer is None:
            self.cut = True
        else:
            message: Message = {"role": "assistant", "content": exchange.answer.text or None}
            if exchange.answer.tool_calls:
                message["tool_calls"] = exchange.answer.tool_calls
            elif not exchange.answer.text:
                message["content"] = exchange.answer.reasoning
            self._transcript.set_answer(message)

    def _sample(self, turn: PlannedTurn, attempt: int, intended_ns: int, seen: Exchange) -> Sample:
        settings, usage = self._settings, seen.usage
        job = settings.job
        reuse = turn.expected_reuse
        if job.answers == "live" and turn.klass is TurnClass.REUSE and self._previous_prompt is not None:
            reuse = self._previous_prompt  # the recorded answers are not in this prompt: only the server knows its length
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
            klass=TurnClass.RETRY if attempt > 1 else turn.klass,
            worker=settings.worker,
            endpoint=job.url,
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

