"""Profiles of the parametric model as files: what is refused, by file and field."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import pytest

from loadgen.cli import main
from loadgen.errors import InputError
from loadgen.trace.synthesis.profile import (
    Alike,
    Window,
    load_profile,
    save_profile,
)

WINDOW = Window(at=[], spread=0.0, early_tool=0.0, early_human=0.0, events=[])


def test_a_profile_of_an_earlier_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    old = msgspec.to_builtins(load_profile("heavy")) | {"version": 1}
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(old))
    with pytest.raises(InputError, match=r"is of version 1.*fit it again with `loadgen trace fit`"):
        load_profile(str(tmp_path / "p.json"))


_WRONG: list[tuple[str, object]] = [
    ("block_size", 0),
    ("shared_prefix", -1),
    ("shared_prefix", 10**7),  # than any first prompt
    ("service[1]", -0.1),
    ("service[3]", 1e300),
    ("main.requests[0]", -1.0),
    ("main.first[19]", 1e300),
    ("main.stops[0][1]", -1.0),
    ("main.stops[0][1]", 1e300),
    ("main.stops[1][0]", -5.0),
    ("main.loop_end[19]", 1.5),
    ("main.loop_end_at[0][1]", -1.0),
    ("main.habits[0][1]", 1e300),
    ("main.alike.answer", 1e300),
    ("main.append_tool[0].growth", 1e300),
    ("main.append_tool[0].run", -1e300),
    ("main.append_tool[0].level", 1e300),
    ("main.append_tool[0].turn", -1),
    ("main.append_tool[0].tokens[0]", -5.0),
    ("main.append_human[0].growth", 1e300),
    ("main.output_tool[0]", -1.0),
    ("main.output_final[19]", 1e300),
    ("main.gap_tool_s[0]", -0.5),
    ("main.gap_human_s[19]", 1e300),
    ("main.leaves[0].chance[0][1]", 1.01),
    ("main.leaves[0].chance[0][1]", -0.01),
    ("main.leaves[0].events[0][2]", -7),
    ("main.window.at[0][0]", 1e300),
    ("main.window.spread", 1e9),
    ("main.window.spread", -0.1),
    ("main.window.early_tool", 2.0),
    ("main.window.events[0][0]", -1),
    ("sub_agents.chance", -0.5),
    ("sub_agents.fan_out[19]", 1e9),
    ("sub_agents.shared_prefix", -1),
    ("sub_agents.shared_prefix", 10**7),
    ("sub_agents.agent.gap_tool_s[0]", -1.0),
]


@pytest.mark.parametrize(("field", "wrong"), _WRONG, ids=lambda value: str(value))
def test_a_number_without_meaning_is_refused_by_file_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, wrong: object
) -> None:
    profile = msgspec.to_builtins(load_profile("heavy"))
    *way, last = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", field)]
    held = profile
    for part in way:
        if isinstance(held[part], tuple):
            held[part] = list(held[part])
        held = held[part]
    held[last] = wrong
    file, out = tmp_path / "p.json", tmp_path / "t.jsonl"
    file.write_bytes(msgspec.json.encode(profile))
    assert main(["trace", "synth", "--profile", str(file), "--sessions", "2", "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"loadgen: profile {file}: `{field}` ")
    assert error.count("\n") == 1
    assert not out.exists()


def test_what_is_no_number_or_breaks_the_order_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    content = msgspec.json.encode(load_profile("heavy"))
    for wrong in (b"NaN", b"Infinity", b"1e999", b"null", b'"x"'):
        file.write_bytes(content.replace(b'"spread":0.0274', b'"spread":' + wrong))
        with pytest.raises(InputError, match=r"p\.json cannot be read"):
            load_profile(str(file))
    for part, wrong_number in (("spread", math.nan), ("spread", math.inf), ("early_tool", -math.inf)):
        profile = load_profile("heavy")
        setattr(profile.main.window, part, wrong_number)
        with pytest.raises(InputError, match=f"`main.window.{part}` must be a number"):
            save_profile(profile, tmp_path / "q.json")
    assert not (tmp_path / "q.json").exists()
    profile = load_profile("heavy")
    profile.main.leaves[0].chance = [(5.0, 0.1), (5.0, 0.2)]
    with pytest.raises(InputError, match=r"the first numbers of `main.leaves\[0\].chance` must rise"):
        save_profile(profile, tmp_path / "q.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"habits": [[1.0]]}, "`habits` must be the correlation matrix"),
        ({"habits": [[1.0, 0.9, 0, 0], [0.8, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]}, "symmetric"),
        ({"stops": [(0.0, 0.0)]}, "`stops` must be above 0"),
        ({"append_human": []}, "`append_human` is empty"),
        ({"alike": Alike(decay=1.0, answer=0.0)}, "`decay` be in"),
        ({"alike": Alike(decay=0.5, answer=1.0)}, "must sum to at most 1"),
        (
            {"window": msgspec.structs.replace(WINDOW, at=[(5.0, 0.5), (4.0, 0.6)])},
            "the first numbers of `main.window.at` must rise",
        ),
        (
            {"window": msgspec.structs.replace(WINDOW, at=[(5.0, 0.6), (6.0, 0.5)])},
            "`window.at` must be rising",
        ),
        ({"window": msgspec.structs.replace(WINDOW, at=[(0.0, 0.5)])}, "`window.at` must be rising"),
    ],
)
def test_what_the_types_do_not_say_is_checked(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    profile = load_profile("heavy")
    profile.main = msgspec.structs.replace(profile.main, **change)
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(profile))
    with pytest.raises(InputError, match=sentence):
        load_profile(str(tmp_path / "p.json"))
