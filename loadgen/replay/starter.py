"""The files to start from: a workload, an SLO file and a CI job for one endpoint."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import InputError
from loadgen.replay import options
from loadgen.replay.wire.target import Target
from loadgen.report.slo import read_slo

WORKLOAD, SLO = "workload.toml", "slo.toml"
CI_FILES = {"github": ".github/workflows/loadgen.yml", "gitlab": "loadgen.gitlab-ci.yml"}

_WORKLOAD = """\
# loadgen run {workload}: what is sent, in which order, and to whom. `loadgen run --help` explains every key.
host = {host}

[trace]
corpus = {corpus}
sessions = 10            # more contexts than fit into GPU memory, or nothing is ever evicted
turns = 5
context_tokens = 140000
new_tokens = 200
output_tokens = 128

[schedule]
schedule = "sweep"       # all first turns, then all second turns, …: the order that defeats an LRU
"""

_SLO = """\
# loadgen gate RUN --slo {slo}

[[slo]]                  # 90 % of later turns within {ttft:g} s, shown with 95 % confidence (needs 29 turns or more)
metric = "ttft"
group = "reuse"
percentile = 90
max_s = {ttft!r}

[[slo]]
metric = "errors"
max = 0

[regression]             # with --baseline: a slower mean TTFT of later turns fails
group = "reuse"
tolerance = 0.05
must_find = 0.25
"""

_GITHUB = """\
# Five runs a night, judged by {slo}. Needs a runner that reaches the endpoint; a key goes into the secret OPENAI_API_KEY.
name: loadgen
on:
  schedule:
    - cron: "0 3 * * *"
  workflow_dispatch:
jobs:
  gate:
    runs-on: [self-hosted]
    steps:
      - uses: actions/checkout@v4
      - run: pip install "loadgen @ git+$LOADGEN_REPOSITORY"  # where this project's repository is
      # an invalid run (exit code 3) is the gate's to judge, which names the reason
      - run: for i in 1 2 3 4 5; do loadgen run {workload} --yes --out runs || [ $? -eq 3 ]; done
        env:
          OPENAI_API_KEY: ${{{{ secrets.OPENAI_API_KEY }}}}
      - run: loadgen gate runs --slo {slo} --junit loadgen-junit.xml
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: loadgen
          path: |
            runs
            loadgen-junit.xml
"""

_GITLAB = """\
# include: this file from .gitlab-ci.yml. Exit code 4 (inconclusive) is a warning, every other one fails the job.
loadgen:
  image: python:3.12
  script:
    - pip install "loadgen @ git+$LOADGEN_REPOSITORY"  # where this project's repository is
    # an invalid run (exit code 3) is the gate's to judge, which names the reason
    - for i in 1 2 3 4 5; do loadgen run {workload} --yes --out runs || [ $? -eq 3 ]; done
    - loadgen gate runs --slo {slo} --junit loadgen-junit.xml
  allow_failure:
    exit_codes: [4]
  artifacts:
    when: always
    paths: [runs]
    reports:
      junit: loadgen-junit.xml
"""


@dataclass(frozen=True)
class Wanted:
    """The answers. `ttft_s` is text as it was typed."""

    host: str
    corpus: str
    ttft_s: str
    ci: str


def usual_ci(folder: Path) -> str:
    """Which CI a folder's owner uses, by what lies there; GitHub's when nothing does."""
    return "gitlab" if (folder / ".gitlab-ci.yml").exists() else "github"


def write(wanted: Wanted, folder: Path) -> list[Path]:
    """Write the files, read them back with the code that will use them, and return their paths. Nothing is overwritten:
    raises InputError when one of them is there, or when an answer makes no sense."""
    Target.parse(wanted.host)
    try:
        ttft = float(wanted.ttft_s)
    except ValueError:
        ttft = math.nan
    if not 0 < ttft < math.inf:
        raise InputError(f"--ttft should be a number of seconds above 0, not {wanted.ttft_s!r}")
    words = {
        "workload": WORKLOAD,
        "slo": SLO,
        "host": json.dumps(wanted.host),
        "corpus": json.dumps(wanted.corpus),
        "ttft": ttft,
    }
    texts = {WORKLOAD: _WORKLOAD, SLO: _SLO}
    if wanted.ci != "none":
        texts[CI_FILES[wanted.ci]] = {"github": _GITHUB, "gitlab": _GITLAB}[wanted.ci]
    for name in texts:
        if (folder / name).exists():
            raise InputError(
                f"{folder / name} is there already, and nothing is overwritten; name another folder with --out"
            )
    paths = []
    for name, text in texts.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(**words), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None
        paths.append(path)
    options.resolve({}, options.read_workload(folder / WORKLOAD))
    read_slo(folder / SLO)
    return paths
