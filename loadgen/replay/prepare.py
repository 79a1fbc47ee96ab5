"""Everything that is done before the load: ask the endpoint, make the workload, work out what to expect of every turn.

Runs in a process of its own without gevent (`loadgen run`, or `loadgen prepare` for a bare `locust -f`), and ends in
a `Job`.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen import tokens
from loadgen.corpus.context import load_set
from loadgen.errors import InputError
from loadgen.measure.probes import fingerprint as server_fingerprint
from loadgen.measure.probes import server as server_probe
from loadgen.replay import schedule, tokenized
from loadgen.replay.endpoint import Api, Facts, api_key, discover
from loadgen.replay.job import Job
from loadgen.replay.options import Options
from loadgen.replay.planner import Planner
from loadgen.replay.rendering import Renderer, agree
from loadgen.replay.transport import request_headers, tls_context
from loadgen.replay.wire import apis as wire_apis
from loadgen.replay.wire import proxy
from loadgen.replay.wire.target import Target
from loadgen.replay.workload import trace_path
from loadgen.report.slo import read_slo
from loadgen.tokens.base import Tokenizer
from loadgen.tokens.endpoint import NAME as ENDPOINT
from loadgen.tokens.endpoint import EndpointTokenizer
from loadgen.trace.reader import TraceFile, open_trace

CONTEXTS_FORMAT = "loadgen-contexts"
# Code, prose, numbers and a run of spaces: what tokenizers differ in.
_PROBE_TEXT = (
    "def probe(x: int) -> str:\n    return f'{x:>12,}'  # naïve – 12345 678901\n\n\nThe quick brown fox\t…\n"
)


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
    if options.slo:
        read_slo(Path(options.slo))  # a bad rule is told before the load, not after
    request_headers(options.api_key_env, options.auth_scheme, options.api, options.header)
    context = tls_context(options.ca_file)
    apis = [
        Api(
            target,
            api_key(options.api_key_env),
            scheme=options.auth_scheme,
            tls=context,
            proxy=proxy.choose(target, options.proxy, os.environ),
        )
        for target in map(Target.parse, (host, *options.endpoint))
    ]
    facts = _discover(apis, options)
    api = apis[0]
    renderer = Renderer(api, facts.model)
    notes: list[str] = []
    tokenizer = _tokenizer(options, renderer, notes)
    path = trace_path(options, tokenizer)
    with open_trace(path) as trace:
        named = trace.header.tokenizer
        if tokenizer is None and named == ENDPOINT and renderer.available:
            tokenizer = EndpointTokenizer(renderer.text, renderer.detokenized)
        elif tokenizer is None and named and named != ENDPOINT and _from_contexts(trace):
            tokenizer = _matching(
                named, renderer, notes
            )  # its texts were cut to size with this very tokenizer
        planner = Planner(options, trace, renderer, tokenizer, facts.max_model_len, notes)
        counters = server_probe.parse(facts.metrics) if facts.metrics else None
        found = (
            server_fingerprint.fingerprint(counters, facts.models_json, {"version": facts.version})
            if counters
            else {}
        )
        block = counters.cache.get("block_size") if counters else None
        job = Job(
            urls=[each.url for each in apis],
            model=facts.model,
            api=options.api,
            client=options.client,
            api_key_env=options.api_key_env,
            auth_scheme=options.auth_scheme,
            headers=list(options.header),
            session_header=options.session_header,
            proxy=options.proxy,
            ca_file=str(Path(options.ca_file).resolve()) if options.ca_file else None,
            cache_salt=options.cache_salt,
            time_scale=facts.time_scale,
            trace=str(path.resolve()),
            trace_sha256=trace.sha256,
            schedule=schedule.describe(options),
            answers=options.answers,
            natural_output=options.natural_output,
            seed=options.seed,
            timeouts_s=(options.first_token_timeout, options.stall_timeout, options.turn_timeout),
            isolate=facts.metrics is not None and len(apis) == 1 and schedule.isolates(options),
            block_size=int(block) if block and block.isdigit() else None,
            in_flight=options.in_flight,
            stop_after=options.stop_after,
            sessions=planner.sessions(),  # which asks for the texts
            texts=len(planner.contents.files),
            nonce_form=planner.nonce_form,
            nonce_seed=uuid.uuid4().hex,
            floor=planner.floor,
            experiment=options.experiment,
            arm=options.arm,
            rep=options.rep,
        )
        schedule.plan_arrivals(options, job, trace)
        _pin(job)
        _guard(options, apis, job)
        if options.api == "completions":
            if not renderer.available:
                raise InputError(
                    "--api completions sends token ids and needs an endpoint with /tokenize to make them"
                )
            tokenized.render(planner, renderer, job)
        if not wire_apis.get(options.api).FORCES_LENGTH and not options.natural_output:
            notes.append(
                f"the {options.api} API cannot force the output length: answers may be shorter than planned"
            )
        workload = {
            "name": trace.header.name,
            "trace": str(path),
            "trace_sha256": trace.sha256,
            "fidelity": trace.header.fidelity,
            "tokenizer": tokenizer.name if tokenizer else ENDPOINT if renderer.available else None,
            "tokenizer_fingerprint": tokenizer.fingerprint if tokenizer else None,
        }
    return Prepared(job, facts, found, workload, planner.template_facts(), notes)


def _discover(apis: list[Api], options: Options) -> Facts:
    """Facts of the first endpoint; the others must serve the same model at the same time scale."""
    first = discover(apis[0], options.model)
    for api in apis[1:]:
        other = discover(api, first.model)
        if other.time_scale != first.time_scale:
            raise InputError(
                f"{api.url} runs at {other.time_scale:g} times real time and {apis[0].url} at {first.time_scale:g}"
            )
    return first


def _from_contexts(trace: TraceFile) -> bool:
    return trace.header.source is not None and trace.header.source.format == CONTEXTS_FORMAT


def _pin(job: Job) -> None:
    """Give every session an endpoint, by the hash of its family: sub-agents go where their parent goes."""
    parents = {child: session.id for session in job.sessions for child, _, _ in session.children}
    for session in job.sessions:
        root = session.id
        while root in parents:
            root = parents[root]
        session.endpoint = int.from_bytes(hashlib.sha256(root.encode()).digest()[:8], "big") % len(job.urls)


def _tokenizer(options: Options, renderer: Renderer, notes: list[str]) -> Tokenizer | None:
    """The tokenizer that counts as the endpoint does. None: the trace names its own, or nothing tells."""
    if options.trace and not options.tokenizer:
        return None
    if options.contexts and not options.tokenizer:
        name = load_set(Path(options.contexts)).tokenizer
        return (
            EndpointTokenizer(renderer.text, renderer.detokenized)
            if name == ENDPOINT
            else _matching(name, renderer, notes)
        )
    if options.tokenizer == ENDPOINT:
        if not renderer.available:
            raise InputError("--tokenizer server needs an endpoint with /tokenize, and this one has none")
        return EndpointTokenizer(renderer.text, renderer.detokenized)
    if options.tokenizer is None and renderer.available:
        local = tokens.get()
        if agree(local, renderer, _PROBE_TEXT)[0]:
            return local
        notes.append(
            "the endpoint's tokenizer is not Tekken: texts are counted by the endpoint itself (/tokenize)"
        )
        return EndpointTokenizer(renderer.text, renderer.detokenized)
    return _matching(options.tokenizer or tokens.DEFAULT, renderer, notes)


def _matching(name: str, renderer: Renderer, notes: list[str]) -> Tokenizer:
    """The local tokenizer of that name. Raises InputError when the endpoint counts differently."""
    tokenizer = tokens.get(name)
    if not renderer.available:
        notes.append(
            f"the endpoint has no /tokenize: token counts are those of {name} and not proven for its model"
        )
        return tokenizer
    same, local, remote = agree(tokenizer, renderer, _PROBE_TEXT)
    if not same:
        raise InputError(
            f"the tokenizer {name} is not the endpoint's: a probe text has {local} tokens by {name} and {remote} at the endpoint; "
            "name the model's own with --tokenizer, or let the endpoint count with --tokenizer server"
        )
    return tokenizer


def _guard(options: Options, apis: list[Api], job: Job) -> None:
    """Refuse what would cost somebody money by accident."""
    if not job.turns:
        raise InputError(f"{job.trace} holds no turn to play")
    planned = job.prompt_tokens
    if options.max_prompt_tokens is not None and planned is None:
        raise InputError(
            "--max-prompt-tokens cannot be kept: nobody can tell how many tokens these prompts have at this endpoint"
        )
    if options.max_prompt_tokens is not None and planned is not None and planned > options.max_prompt_tokens:
        raise InputError(
            f"the run would send {planned:,} prompt tokens, more than --max-prompt-tokens {options.max_prompt_tokens:,}"
        )
    public = next((api.url for api in apis if not api.local), None)
    if public and not options.yes and options.max_prompt_tokens is None:
        size = f"{planned:,}" if planned is not None else "an unknown number of"
        raise InputError(
            f"{public} is not on this machine or a private network, and the run would send {size} prompt tokens; "
            "say --yes, or set --max-prompt-tokens"
        )
