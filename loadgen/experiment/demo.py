"""The demo: the Lablup and VAST benchmark's shape on a simulated endpoint, without and with offload.

10 contexts of 140,000 tokens, 5 turns each, all first turns in order, then all second turns, and so on, one turn in
flight, 128 tokens out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadgen import tokens
from loadgen.corpus import build, recipe
from loadgen.corpus.context import ContextSet
from loadgen.corpus.writer import Progress
from loadgen.errors import EXIT_INTERRUPTED
from loadgen.experiment.simulated import simulated_endpoint
from loadgen.replay import launch
from loadgen.replay.fleet.rundir import new_run_dir
from loadgen.replay.options import Options, to_arguments
from loadgen.replay.prepare import Prepared, prepare

ARMS = ("off", "offload")
PROFILE = "blog"


@dataclass(frozen=True)
class Demo:
    """What can be changed about it."""

    corpus: str = "stdlib"
    rev: str | None = None
    sessions: int = 10
    turns: int = 5
    context_tokens: int = 140_000
    output_tokens: int = 128
    scale: float = 20.0
    seed: int = 0
    out: Path = Path("runs")


@dataclass(frozen=True)
class Result:
    folder: Path
    runs: list[Path]
    code: int  # the worst exit code of the arms


def build_contexts(demo: Demo, folder: Path, progress: Progress | None) -> ContextSet:
    """Step 1. Raises InputError when the corpus is missing or has too little text."""
    source = recipe.resolve(demo.corpus, demo.rev)
    return build.build(
        source,
        n=demo.sessions,
        tokens=demo.context_tokens,
        out=folder,
        tokenizer=tokens.get("tekken"),
        progress=progress,
    )


def play(
    demo: Demo,
    *,
    building: Callable[[], Progress | None],
    built: Callable[[ContextSet], None],
    planned: Callable[[str, Prepared], None],
) -> Result:
    """Build the contexts, play both arms one after the other. The callbacks tell a person what goes on."""
    folder = new_run_dir(demo.out)
    try:
        contexts = build_contexts(demo, folder / "contexts", building())
    except BaseException:
        folder.rmdir() if not any(folder.iterdir()) else None
        raise
    built(contexts)
    options = Options(
        contexts=str(folder / "contexts"),
        turns=demo.turns,
        output_tokens=demo.output_tokens,
        seed=demo.seed,
        experiment=folder.name,
    )
    runs: list[Path] = []
    worst = 0
    for arm in ARMS:
        mine = dataclasses.replace(options, arm=arm, run_dir=str(folder / arm))
        with simulated_endpoint(PROFILE, arm, demo.scale) as url:
            prepared = prepare(mine, url)
            planned(arm, prepared)
            run_dir, code = launch.play(prepared, mine, launch.Fleet(), to_arguments(mine))
        if (run_dir / "summary.json").is_file():
            runs.append(run_dir)
        worst = max(worst, code)
        if code == EXIT_INTERRUPTED or run_dir not in runs:
            break
    return Result(folder, runs, worst)
