from __future__ import annotations

import pytest

from loadgen.cli import main
from loadgen.errors import InputError
from loadgen.replay.live import parse_stages


def test_stages_are_sessions_and_seconds() -> None:
    assert parse_stages("4:60, 8 : 0.5") == [(4, 60.0), (8, 0.5)]


@pytest.mark.parametrize("text", ["", "4", "4:", ":60", "0:60", "4:0", "4:60,", "-1:5", "4:60;8:60", "4:1e3"])
def test_what_is_no_stage_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form SESSIONS:SECONDS"):
        parse_stages(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--stages", "4:x"), "--stages '4:x' is not of the form"), (("--stages", "4:5", "-u", "5"), "-u 5 has no effect with --stages")],
)  # fmt: skip
def test_stages_are_looked_at_before_anything_else(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens at this endpoint, and nobody asks it."""
    assert main(["run", "--host", "http://127.0.0.1:9", "--schedule", "closed", *words]) == 2
    assert said in capsys.readouterr().err
