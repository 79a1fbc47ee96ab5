"""What a run can be told: one table of flags, shared by `loadgen run`, by Locust's own command line and by TOML.

`Options` is the typed form. Precedence: flags over environment (`LOADGEN_<FLAG>`) over the workload file
over defaults. No gevent and no locust here.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from loadgen import paths
from loadgen.errors import InputError
from loadgen.replay.live import parse_stages

SCHEDULES = ("sweep", "closed", "open", "timed")
ANSWERS = ("recorded", "live", "tokens")
APIS = ("chat", "completions", "responses", "messages")
CLIENTS = ("loadgen", "openai")
OVERFLOW = ("refuse", "skip", "compact")
NONCE_SCOPES = ("session", "family", "group", "run", "none")


_LEAST_RATE = 1e-6  # sessions a second: one in twelve days
_MOST = 100_000


def _flag(
    default: Any,
    help: str,
    *,
    only: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
) -> Any:
    """A field that is a flag. `only` names the schedules in which it has an effect (empty: all)."""
    return field(
        default=default, metadata={"help": help, "only": only, "choices": choices, "metavar": metavar}
    )


@dataclass(kw_only=True)
class Options:
    """Everything that shapes a run, in the order of `--help`. Seconds are the endpoint's seconds."""

    # what is played
    trace: str | None = _flag(
        None, "trace file to replay; without it contexts are built from --corpus", metavar="FILE"
    )
    corpus: str = _flag("stdlib", "recipe, repository path or URL to build contexts from", metavar="CORPUS")
    rev: str | None = _flag(None, "revision of the corpus", metavar="REV")
    contexts: str | None = _flag(None, "folder of contexts that `loadgen corpus build` made", metavar="DIR")
    tokenizer: str | None = _flag(
        None,
        "tokenizer of the endpoint's model: tekken, tiktoken:NAME, hf:PATH, or server to let the endpoint count",
        metavar="NAME",
    )
    sessions: int | None = _flag(None, "number of sessions (default: all of the trace, else 10)", metavar="N")
    turns: int | None = _flag(None, "turns a session (default: all of the trace, else 5)", metavar="N")
    first_turn: int = _flag(
        0, "turns of each session that are in the prompt from the start and are not sent", metavar="N"
    )
    shuffle: bool = _flag(False, "take the sessions in an order drawn by --seed instead of the trace's")
    copies: int = _flag(
        1, "play each session this many times, each copy under a nonce of its own", metavar="K"
    )
    context_tokens: int = _flag(140_000, "tokens of a context built from --corpus", metavar="N")
    new_tokens: int = _flag(200, "tokens of new text a later turn, for contexts", metavar="N")
    output_tokens: int | None = _flag(
        None, "output tokens a turn (default: the trace's, else 128)", metavar="N"
    )
    # how
    schedule: str = _flag("sweep", "order and timing of turns", choices=SCHEDULES)
    width: int = _flag(1, "turns in flight of a sweep", only=("sweep",), metavar="N")
    rate: float | None = _flag(None, "sessions that arrive a second", only=("open",), metavar="R")
    burstiness: float = _flag(
        1.0, "shape of the gamma arrivals; 1 is Poisson, less is burstier", only=("open",), metavar="K"
    )
    speed: float = _flag(
        1.0, "play a trace's session starts this many times faster", only=("timed",), metavar="X"
    )
    stagger: float = _flag(
        0.0, "seconds between the starts of the first sessions", only=("closed",), metavar="S"
    )
    jitter: float = _flag(
        0.0, "spread coarse session starts by up to this many seconds", only=("timed",), metavar="S"
    )
    mid_start: bool = _flag(
        False,
        "the first live sessions start at a turn drawn by --seed, as a fleet under way",
        only=("closed",),
    )
    stages: str | None = _flag(
        None,
        "live sessions over time, as SESSIONS:SECONDS,…; the run ends with the last stage",
        only=("closed",),
        metavar="STAGES",
    )
    in_flight: int | None = _flag(
        None,
        "most turns in flight at once, apart from live sessions",
        only=("closed", "open", "timed"),
        metavar="N",
    )
    stop_after: int | None = _flag(None, "stop dealing after this many turns", metavar="N")
    warmup: int = _flag(
        0,
        "turns of the same shape, under other nonces, before the run; their samples are kept apart",
        metavar="N",
    )
    gap_scale: float = _flag(1.0, "scale of all gaps", metavar="X")
    tool_gap_cap: float | None = _flag(None, "longest tool gap", metavar="S")
    human_gap_cap: float | None = _flag(None, "longest human gap", metavar="S")
    answers: str = _flag(
        "recorded", "what stands as the assistant's answer in later prompts", choices=ANSWERS
    )
    nonce_scope: str = _flag(
        "session", "what shares a nonce; none keeps prompts as they are", choices=NONCE_SCOPES
    )
    overflow: str = _flag(
        "refuse",
        "a turn that would not fit the model: refuse the run, skip the session's rest, or compact its history to the first message",
        choices=OVERFLOW,
    )
    natural_output: bool = _flag(False, "do not force the output length")
    seed: int = _flag(0, "seed of everything random", metavar="N")
    # to whom
    model: str | None = _flag(
        None, "model name (default: the only one that the endpoint serves)", metavar="NAME"
    )
    api: str = _flag("chat", "API to speak", choices=APIS)
    client: str = _flag(
        "loadgen", "openai sends the same turns through the openai SDK, as a cross-check", choices=CLIENTS
    )
    endpoint: tuple[str, ...] = _flag(
        (), "another endpoint of the same model; repeat it; sessions are pinned by hash", metavar="URL"
    )
    header: tuple[str, ...] = _flag(
        (),
        "extra header 'Name: value'; $VAR in the value is read from the environment at send time",
        metavar="H",
    )
    session_header: str | None = _flag(
        None, "header that carries the session's id, for routers with session affinity", metavar="NAME"
    )
    auth_scheme: str = _flag(
        "Bearer", "scheme in front of the key, such as Bearer or BackendAI", metavar="WORD"
    )
    proxy: str | None = _flag(
        None,
        "HTTP proxy to go through; without it a proxy of the environment is refused, since it buffers",
        metavar="URL",
    )
    ca_file: str | None = _flag(
        None, "certificate authorities (PEM) to trust instead of the system's", metavar="FILE"
    )
    cache_salt: bool = _flag(False, "send vLLM's cache_salt with the nonce's scope beside the nonce")
    api_key_env: str = _flag("OPENAI_API_KEY", "environment variable that holds the API key", metavar="VAR")
    first_token_timeout: float = _flag(600.0, "longest wait for a first token", metavar="S")
    stall_timeout: float = _flag(120.0, "longest silence after it", metavar="S")
    turn_timeout: float = _flag(3600.0, "longest turn", metavar="S")
    yes: bool = _flag(False, "send to a host that is not local without asking")
    max_prompt_tokens: int | None = _flag(
        None, "refuse to send more prompt tokens than this in all", metavar="N"
    )
    metrics: str | None = _flag(
        None, "serve Prometheus metrics of the run at this address while it lasts", metavar="[HOST:]PORT"
    )
    slo: str | None = _flag(
        None, "file of rules to judge the run by; the exit code is the gate's", metavar="FILE"
    )
    # what it is called and where it goes
    arm: str = _flag("run", "name of the arm", metavar="NAME")
    rep: int = _flag(0, "repetition within an experiment", metavar="K")
    experiment: str | None = _flag(None, "name of the experiment that this run is a part of", metavar="NAME")
    out: str = _flag("runs", "folder for run folders", metavar="DIR")
    run_dir: str | None = _flag(None, "run folder itself (default: a new one in --out)", metavar="DIR")

    def check(self, given: set[str]) -> None:
        """Refuse values that make no sense and flags that would have no effect. `given` holds the names that the user set."""
        for name in sorted(given):
            spec = _FIELDS[name]
            only = spec.metadata["only"]
            if only and self.schedule not in only:
                raise InputError(
                    f"{flag_name(name)} has no effect with --schedule {self.schedule}; it belongs to {' and '.join(only)}"
                )
            choices = spec.metadata["choices"]
            if choices and getattr(self, name) not in choices:
                raise InputError(
                    f"{flag_name(name)} is {getattr(self, name)!r}; choose one of {', '.join(choices)}"
                )
        for name in (
            "sessions",
            "turns",
            "width",
            "copies",
            "context_tokens",
            "output_tokens",
            "max_prompt_tokens",
            "in_flight",
            "stop_after",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{flag_name(name)} must be at least 1, not {value}")
        for name in (
            "gap_scale",
            "tool_gap_cap",
            "human_gap_cap",
            "stagger",
            "jitter",
            "new_tokens",
            "first_turn",
            "warmup",
        ):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{flag_name(name)} must not be negative, and is {value}")
        for name in ("rate", "burstiness", "speed", "first_token_timeout", "stall_timeout", "turn_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{flag_name(name)} must be above 0, not {value}")
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{flag_name(name)} must be a finite number, not {value}")
        if self.seed < 0:
            raise InputError(f"--seed must not be negative, and is {self.seed}")
        if self.rate is not None and self.rate < _LEAST_RATE:
            raise InputError(f"--rate must be at least {_LEAST_RATE:g}, not {self.rate:g}")
        if self.copies > _MOST or self.warmup > _MOST:
            raise InputError(f"--copies and --warmup take at most {_MOST:,}")
        if self.stages is not None:
            parse_stages(self.stages)
        if self.schedule == "open" and self.rate is None:
            raise InputError("--schedule open needs --rate, the sessions that arrive a second")
        if self.answers == "tokens" and self.api != "completions":
            raise InputError(
                "--answers tokens needs --api completions: only token ids can be continued exactly"
            )
        if self.answers == "live" and self.api == "completions":
            raise InputError("--answers live has no meaning with --api completions; use --answers tokens")
        if self.client == "openai" and self.api == "messages":
            raise InputError("--client openai does not speak --api messages")
        from loadgen.replay.wire import headers  # `--help` shall not load a JSON library

        for name, _ in headers.parse(
            [*self.header, *([f"{self.session_header}: x"] if self.session_header else [])]
        ):
            if name.lower() in ("x-request-id", "authorization"):
                raise InputError(
                    f"the header {name} is loadgen's own: each turn's id, and the key with --auth-scheme"
                )
        headers.credentials(None, scheme=self.auth_scheme)
        if self.proxy and self.client == "openai":
            raise InputError("--client openai does not go through a proxy")
        if self.trace and self.contexts:
            raise InputError("--trace and --contexts exclude each other: a trace names its own contexts")
        if self.trace:
            for name in sorted(given & {"corpus", "rev", "context_tokens", "new_tokens"}):
                raise InputError(f"{flag_name(name)} has no effect with --trace")
        if self.contexts:
            for name in sorted(given & {"corpus", "rev", "context_tokens"}):
                raise InputError(f"{flag_name(name)} has no effect with --contexts")


_FIELDS = {item.name: item for item in dataclasses.fields(Options)}
_TYPES = get_type_hints(Options)


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _kind(name: str) -> type:
    """The plain type of a field, `int | None` being int."""
    hint = _TYPES[name]
    if hint == tuple[str, ...]:
        return list
    for kind in (bool, int, float, str):
        if hint is kind or hint == (kind | None):
            return kind
    raise TypeError(name)  # a field of another type is a bug here


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags, in a group, which keeps them out of the form of Locust's web UI. One that is not given is None, so that
    precedence can be worked out later."""
    group = parser.add_argument_group("loadgen", "What is replayed, in which order, and against what")
    for name, spec in _FIELDS.items():
        default = spec.default
        help = spec.metadata["help"]
        if default not in (None, False, ()) and "default" not in help:
            help += f" (default: {default})"
        if _kind(name) is list:
            group.add_argument(
                flag_name(name), action="append", default=None, metavar=spec.metadata["metavar"], help=help
            )
        elif _kind(name) is bool:
            group.add_argument(flag_name(name), action="store_const", const=True, default=None, help=help)
        else:
            group.add_argument(
                flag_name(name),
                type=_kind(name),
                default=None,
                choices=spec.metadata["choices"] or None,
                metavar=spec.metadata["metavar"],
                help=help,
            )


def read_workload(path: Path) -> dict[str, Any]:
    """A workload file as a flat dictionary of options. Tables `[trace]`, `[schedule]`, `[endpoint]` and `[replay]` are
    for people: the keys inside are the flags' names with underscores. Raises InputError naming the unknown key."""
    try:
        shipped = None if path.exists() else paths.data_dir("workloads") / path
        data = tomllib.loads((shipped if shipped and shipped.is_file() else path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no workload file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    flat: dict[str, Any] = {}
    for key, value in data.items():
        for name, item in value.items() if isinstance(value, dict) else ((key, value),):
            name = name.replace("-", "_")
            if name not in _FIELDS and name not in ("host", "users", "processes", "run_time"):
                raise InputError(f"{path}: unknown key {name!r}; `loadgen run --help` lists the options")
            flat[name] = item
    return flat


def _convert(name: str, value: Any, origin: str) -> Any:
    kind = _kind(name)
    try:
        if kind is bool:
            if isinstance(value, bool):
                return value
            lowered = str(value).lower()
            if lowered not in ("1", "0", "true", "false", "yes", "no"):
                raise ValueError(value)
            return lowered in ("1", "true", "yes")
        if kind is list:
            if isinstance(value, str):
                return tuple(value.split())
            if not all(isinstance(item, str) for item in value):
                raise ValueError(value)
            return tuple(value)
        if isinstance(value, bool) or (kind is int and isinstance(value, float) and not value.is_integer()):
            raise ValueError(value)
        return kind(value)
    except (TypeError, ValueError):
        raise InputError(f"{origin}: {name} should be a {kind.__name__}, not {value!r}") from None


def resolve(flags: Mapping[str, Any], workload: Mapping[str, Any] | None = None) -> Options:
    """Options from parsed flags (None means not given), environment and workload file, checked. Raises InputError."""
    values: dict[str, Any] = {}
    for name in _FIELDS:
        variable = "LOADGEN_" + name.upper()
        if flags.get(name) is not None:
            values[name] = _convert(name, flags[name], flag_name(name))
        elif os.environ.get(variable):
            values[name] = _convert(name, os.environ[variable], variable)
        elif workload and name in workload:
            values[name] = _convert(name, workload[name], "workload file")
    options = Options(**values)
    options.check({name for name in values if values[name] != _FIELDS[name].default})
    return options


def to_arguments(options: Options) -> list[str]:
    """The flags that reproduce `options`, for run.json and for the Locust process."""
    words: list[str] = []
    for name, spec in _FIELDS.items():
        value = getattr(options, name)
        if value == spec.default:
            continue
        if isinstance(value, tuple):
            words += [f"{flag_name(name)}={item}" for item in value]
        else:
            # One word, so that a value that begins with a dash is not taken for a flag.
            words.append(flag_name(name) if value is True else f"{flag_name(name)}={value}")
    return words
