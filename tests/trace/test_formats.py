"""Every importer on a small file of its own; what each format is known to trip over."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import zstandard

from loadgen.errors import InputError
from loadgen.trace.formats import registry
from loadgen.trace.importing import Imported, import_trace
from loadgen.trace.model import Turn
from loadgen.trace.prefix import PrefixIndex
from loadgen.trace.reader import TraceFile, open_trace
from tests.trace import fixtures, fixtures_agents


def load(tmp_path: Path, name: str, **options: Any) -> tuple[Imported, TraceFile]:
    done = import_trace([fixtures.write(tmp_path / "in", name)], tmp_path / "out.jsonl", **options)
    return done, open_trace(done.path)


def turns(trace: TraceFile, number: int = 0) -> list[Turn]:
    return trace.turns(trace.sessions[number].id)


def prompts(trace: TraceFile, number: int = 0) -> list[list[dict[str, Any]]]:
    """Whole prompts, rebuilt by the format's rule."""
    found: list[list[dict[str, Any]]] = []
    prompt: list[dict[str, Any]] = []
    answer: list[dict[str, Any]] = []
    for turn in turns(trace, number):
        prompt = [*prompt, *answer][: turn.keep] + (turn.append or [])
        answer = [turn.answer] if turn.answer is not None else []
        found.append(prompt)
    return found


@pytest.mark.parametrize("name", [form.name for form in registry.FORMATS])
def test_every_format_is_detected_and_its_turns_are_counted(tmp_path: Path, name: str) -> None:
    done, trace = load(tmp_path, name)
    with trace:
        assert done.format.name == name
        assert (done.counts["sessions"], done.counts["sub_agents"], done.counts["turns"]) == fixtures.FILES[
            name
        ][1]
        assert trace.header.fidelity == done.format.fidelity
        assert min(session.start_s for session in trace.sessions) == 0.0
        assert trace.open_sessions() == []
        for session in trace.sessions:
            gaps = [turn.gap.s for turn in trace.turns(session.id) if turn.gap is not None]
            assert all(0 <= gap < 3600 for gap in gaps)


def test_claude_code_merges_rows_and_links_sub_agents(tmp_path: Path) -> None:
    done, trace = load(tmp_path, "claude-code")
    with trace:
        first, second = turns(trace)
        assert (first.input_tokens, first.output_tokens, first.cached_tokens) == (112, 40, 0)
        assert (second.input_tokens, second.output_tokens, second.cached_tokens) == (165, 9, 112)
        assert first.answer is not None
        assert first.answer["content"] == "I look."
        assert [call["id"] for call in first.answer["tool_calls"]] == ["t1", "t2"]
        assert [m["role"] for m in second.append or []] == [
            "tool",
            "tool",
        ]  # parallel results, though one hangs on a dead end
        child = trace.sessions[1]
        assert child.parent is not None
        assert (child.parent.session, child.parent.turn, child.parent.call_id, child.parent.wait) == (
            "s1",
            0,
            "t2",
            True,
        )
        assert second.gap is not None
        assert second.gap.s == pytest.approx(
            5.0
        )  # from the awaited child's end (15.5) to the last result (20.5)
        assert done.report.skipped == {"row of unknown type hologram": 1}


def test_claude_code_takes_a_call_of_a_resumed_copy_once_but_keeps_its_history(tmp_path: Path) -> None:
    folder = fixtures.write(tmp_path / "in", "claude-code")
    more = fixtures_agents.jsonl(
        fixtures_agents.claude("user", "u9", "a4", 40, {"role": "user", "content": "and now?"}),
        fixtures_agents.claude(
            "assistant",
            "a9",
            "u9",
            44,
            fixtures_agents.claude_call("m3", {"type": "text", "text": "ok"}, 4, "end_turn", (5, 0, 170)),
            requestId="r3",
        ),
    )
    (folder / "s2.jsonl").write_bytes(fixtures_agents.CLAUDE_MAIN + more)
    done = import_trace([folder], tmp_path / "out.jsonl")
    assert done.counts["turns"] == 4
    assert done.report.skipped["call that another file of the project holds already"] == 2
    with open_trace(done.path) as trace:
        resumed = next(n for n, s in enumerate(trace.sessions) if s.id == "s2")
        assert [m["role"] for m in prompts(trace, resumed)[0]] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user",
        ]


def test_claude_code_rewinds_and_compactions_shorten_the_prompt(tmp_path: Path) -> None:
    rows = [
        fixtures_agents.claude("user", "u1", None, 0, {"role": "user", "content": "one"}),
        fixtures_agents.claude("assistant", "a1", "u1", 1, fixtures_agents.claude_call("m1", fixtures_agents.text("1"), 4, "end_turn", (9, 0, 0)), requestId="q1"),
        fixtures_agents.claude("user", "u2", "a1", 2, {"role": "user", "content": "two"}),
        fixtures_agents.claude("assistant", "a2", "u2", 3, fixtures_agents.claude_call("m2", fixtures_agents.text("2"), 4, "end_turn", (19, 0, 0)), requestId="q2"),
        fixtures_agents.claude("user", "u3", "a1", 4, {"role": "user", "content": "another two"}),
        fixtures_agents.claude("assistant", "a3", "u3", 5, fixtures_agents.claude_call("m3", fixtures_agents.text("3"), 4, "end_turn", (19, 0, 0)), requestId="q3"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "parentUuid": None, "logicalParentUuid": "a3", "sessionId": "s1"},
        fixtures_agents.claude("user", "u4", "c1", 6, {"role": "user", "content": "summary"}, isCompactSummary=True),
        fixtures_agents.claude("assistant", "a4", "u4", 7, fixtures_agents.claude_call("m4", fixtures_agents.text("4"), 4, "end_turn", (7, 0, 0)), requestId="q4"),
    ]  # fmt: skip
    (tmp_path / "s1.jsonl").write_bytes(fixtures_agents.jsonl(*rows))
    done = import_trace([tmp_path / "s1.jsonl"], tmp_path / "out.jsonl")
    with open_trace(done.path) as trace:
        assert [[m["content"] for m in p] for p in prompts(trace)] == [
            ["one"],
            ["one", "1", "two"],
            ["one", "1", "another two"],
            ["summary"],
        ]
        assert [turn.keep for turn in turns(trace)] == [None, None, 2, 0]


def test_codex_counts_a_repeated_token_count_once_and_takes_differences(tmp_path: Path) -> None:
    _, trace = load(tmp_path, "codex")
    with trace:
        first, second, third = turns(trace)
        assert (first.input_tokens, first.cached_tokens, first.output_tokens, first.reasoning_tokens) == (
            100,
            60,
            20,
            1,
        )
        assert (second.input_tokens, second.output_tokens) == (130, 5)
        assert (third.input_tokens, third.keep) == (None, 0)
        assert first.gap is None
        assert (second.gap.kind, second.gap.s) == ("tool", 1.0) if second.gap else pytest.fail("no gap")
        assert prompts(trace)[2][0]["content"] == "we listed files"
        assert trace.blob(trace.sessions[0].system or "").json == "You code."


def test_codex_prefers_the_plain_file(tmp_path: Path) -> None:
    folder = fixtures.write(tmp_path / "in", "codex")
    (folder / "rollout-1.jsonl.zst").write_bytes(zstandard.compress(fixtures_agents.CODEX))
    assert import_trace([folder], tmp_path / "a.jsonl").counts["turns"] == 3
    (folder / "rollout-1.jsonl").unlink()
    assert import_trace([folder], tmp_path / "b.jsonl").counts["turns"] == 3


def test_weka_blocks_name_their_source(tmp_path: Path) -> None:
    _, trace = load(tmp_path, "weka")
    with trace:
        found = [
            (t.blocks.from_, t.blocks.reuse, t.blocks.new, t.blocks.tail_tokens)
            for t in turns(trace)
            if t.blocks
        ]
        assert found == [(None, 0, 3, 8), (None, 3, 2, 10), (None, 3, 1, 4), (("trace_1", 1), 5, 1, 16)]
        assert [t.gap.kind if t.gap else None for t in turns(trace)] == [None, "tool", "tool", "human"]
        assert [t.gap.s if t.gap else None for t in turns(trace)] == [
            None,
            1.0,
            3.0,
            7.0,
        ]  # the third waits for the child's end at 9
        assert [t.seen.ttft_s if t.seen else None for t in turns(trace)] == [None, None, 0.5, None]
        child = trace.sessions[1]
        assert child.agent == "Explore"
        assert child.parent is not None
        assert (child.parent.turn, child.parent.wait) == (1, True)
        assert (trace.turns(child.id)[0].gap or pytest.fail("no gap")).s == 1.0


def test_weka_counts_from_the_root_where_children_do(tmp_path: Path) -> None:
    absolute = {**fixtures.WEKA, "requests": [dict(r) for r in fixtures.WEKA["requests"]]}  # type: ignore[attr-defined]
    marker = absolute["requests"][2]
    marker["requests"] = [{**marker["requests"][0], "t": 5.0}]
    (tmp_path / "t.json").write_bytes(fixtures_agents.doc(absolute))
    with open_trace(import_trace([tmp_path / "t.json"], tmp_path / "o.jsonl").path) as trace:
        assert trace.sessions[1].start_s == 5.0


def test_weka_tells_flattened_agents_apart(tmp_path: Path) -> None:
    def request(t: float, size: int, ids: list[int], api: float = 3.0) -> dict[str, Any]:
        return {
            "t": t,
            "type": "n",
            "model": "m",
            "in": size,
            "out": 5,
            "hash_ids": ids,
            "stop": "tool_use",
            "api_time": api,
        }

    rows = [
        request(0, 320, [1, 2, 3, 4, 5]),
        request(4, 384, [1, 2, 3, 4, 5, 6], api=20.0),
        request(5, 192, [1, 20, 21]),  # starts while the one before is under way, and shares tools alone
        request(9, 256, [1, 20, 21, 22]),
        request(30, 448, [1, 2, 3, 4, 5, 6, 7]),
        request(40, 128, [1, 2]),  # a compaction: nobody else was busy
    ]
    (tmp_path / "t.json").write_bytes(fixtures_agents.doc({**fixtures.WEKA, "requests": rows}))
    done = import_trace([tmp_path / "t.json"], tmp_path / "o.jsonl")
    assert (done.counts["sessions"], done.counts["sub_agents"], done.counts["turns"]) == (2, 1, 6)
    with open_trace(done.path) as trace:
        assert [t.input_tokens for t in turns(trace)] == [320, 384, 448, 128]
        assert [t.input_tokens for t in turns(trace, 1)] == [192, 256]
        child = trace.sessions[1].parent
        assert child is not None
        assert (child.turn, child.wait) == (0, False)


def test_weka_says_where_lengths_and_ids_disagree(tmp_path: Path) -> None:
    rows = [dict(r) for r in fixtures.WEKA["requests"]]  # type: ignore[attr-defined]
    rows[0]["in"], rows[1]["in"] = 130, 400
    (tmp_path / "t.json").write_bytes(fixtures_agents.doc({**fixtures.WEKA, "requests": rows}))
    done = import_trace([tmp_path / "t.json"], tmp_path / "o.jsonl")
    assert done.report.notes["more hash ids than `in` has blocks; the surplus is dropped"] == 1
    assert done.report.notes["fewer hash ids than `in` has blocks; the rest counts as new"] == 1
    with open_trace(done.path) as trace:
        assert [t.input_tokens for t in turns(trace)] == [130, 400, 260, 400]
        assert [t.blocks.reuse for t in turns(trace) if t.blocks] == [0, 2, 3, 5]


def test_mooncake_shares_across_sessions_and_keeps_equal_tails(tmp_path: Path) -> None:
    _, trace = load(tmp_path, "mooncake")
    with trace:
        one, two, three = (trace.turns(s.id)[0].blocks for s in trace.sessions)
        assert one is not None
        assert two is not None
        assert three is not None
        assert (one.reuse, one.new, one.tail_tokens) == (0, 2, 476)
        assert (two.from_, two.reuse, two.new, two.same_tail) == ((trace.sessions[0].id, 0), 2, 0, True)
        assert (three.from_, three.reuse, three.new, three.same_tail) == (
            (trace.sessions[0].id, 0),
            2,
            2,
            False,
        )


def test_bailian_forks_become_sessions(tmp_path: Path) -> None:
    done, trace = load(tmp_path, "bailian")
    with trace:
        assert [trace.turn_count(s.id) for s in trace.sessions] == [2, 1]
        assert (turns(trace, 1)[0].blocks or pytest.fail("no blocks")).from_ is not None
        assert sum(done.report.notes.values()) == 2


def test_lmcache_sorts_lines_and_cuts_text_where_sharing_ends(tmp_path: Path) -> None:
    _, trace = load(tmp_path, "lmcache")
    with trace:
        texts = ["".join(m["content"] for m in p) for p in prompts(trace)]
        assert texts == [
            "system: be\nuser: go",
            "system: be\nuser: go\nmore",
            "system: be\nuser: go\nmore and more",
        ]
        index = PrefixIndex()
        shared = [index.add(trace.sessions[0], t).shared for t in turns(trace)]
        assert shared == [0, 1, 2]


def test_otel_parallel_calls_are_sub_agents(tmp_path: Path) -> None:
    done, trace = load(tmp_path, "otel")
    with trace:
        assert [len(p) for p in prompts(trace)] == [1, 3]
        assert turns(trace)[0].seen == type(turns(trace)[0].seen)(ttft_s=0.5, e2e_s=2.0)  # type: ignore[misc]
        assert trace.sessions[1].parent is not None
        assert done.report.skipped == {"span that is no model call (execute_tool)": 1}


def test_claude_trace_drops_the_nonce_and_reads_the_stream(tmp_path: Path) -> None:
    _, trace = load(tmp_path, "claude-trace")
    with trace:
        assert trace.sessions[0].id == "z"
        assert trace.blob(trace.sessions[0].system or "").json == "be"
        only = turns(trace)[0]
        assert (only.input_tokens, only.cached_tokens, only.output_tokens, only.stop) == (
            100,
            95,
            31,
            "tool_use",
        )
        assert (only.answer or {})["tool_calls"][0]["function"]["arguments"] == '{"c":"ls"}'


def test_burstgpt_rows_as_published(tmp_path: Path) -> None:
    """API calls have no session id, failures no tokens at all, and times are whole seconds."""
    path = tmp_path / "BurstGPT_3.csv"
    path.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "100.0,aa-1,43,GPT-4,906,446,1352,Conversation log\n"
        "110.0,,2,ChatGPT,11,77,88,API log\n"
        "120.0,,1,ChatGPT,12,51,63,API log\n"
        "130.0,aa-1,0,ChatGPT,0,0,0,Conversation log\n"
        "150.0,aa-1,26,GPT-4,1631,282,1913,Conversation log\n"
    )
    done = import_trace([path], tmp_path / "out.jsonl")
    assert (done.format.name, done.counts["sessions"], done.counts["turns"]) == ("burstgpt", 3, 4)
    with open_trace(done.path) as trace:
        assert (trace.header.made or {})["skipped"] == {"failed request whose prompt is not counted": 1}
        assert [turn.input_tokens for turn in turns(trace)] == [906, 1631]
        assert turns(trace)[1].gap is not None
        assert turns(trace)[1].gap.s == 7.0


def test_sharegpt_with_tools_and_parts_with_values(tmp_path: Path) -> None:
    said = [
        ("human", "hi"),
        ("function_call", '{"name": "f", "arguments": {"a": 1}}'),
        ("observation", "2"),
        ("gpt", "two"),
        ("x", "?"),
    ]
    entry = {
        "conversations": [{"from": who, "value": text} for who, text in said],
        "tools": '[{"name": "f", "parameters": {}}]',
    }
    (tmp_path / "s.json").write_bytes(fixtures_agents.doc([entry]))
    done = import_trace([tmp_path / "s.json"], tmp_path / "out.jsonl")
    with open_trace(done.path) as trace:
        assert (trace.header.made or {})["skipped"] == {"message of unknown shape": 1}
        asked = prompts(trace)[1]
        assert asked[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
        assert asked[2] == {"role": "tool", "tool_call_id": asked[1]["tool_calls"][0]["id"], "content": "2"}
        assert trace.blob(trace.sessions[0].tools or "").json[0]["function"]["name"] == "f"
    row = [
        {"role": who, "content": [{"type": "text", "value": text}]}
        for who, text in (("user", "hi"), ("assistant", "yo"))
    ]
    (tmp_path / "v.jsonl").write_bytes(fixtures_agents.jsonl({"messages": row}))
    with open_trace(import_trace([tmp_path / "v.jsonl"], tmp_path / "v.out.jsonl").path) as trace:
        assert prompts(trace)[0][0]["content"] == "hi"


def test_several_formats_at_once_ask_for_a_choice(tmp_path: Path) -> None:
    fixtures.write(tmp_path / "in", "codex")
    fixtures.write(tmp_path / "in", "mooncake")
    with pytest.raises(InputError, match=r"several formats.*--format"):
        import_trace([tmp_path / "in"], tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="no format is called 'x'"):
        import_trace([tmp_path / "in"], tmp_path / "out.jsonl", format_name="x")
    with pytest.raises(InputError, match="no file of a known format"):
        import_trace([Path(__file__)], tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="does not exist"):
        import_trace([tmp_path / "none"], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_is_not_read_and_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(fixtures.MOONCAKE)
    with pytest.raises(InputError, match="both read and written"):
        import_trace([path], path)
    assert path.read_bytes() == fixtures.MOONCAKE


@pytest.mark.parametrize(
    ("name", "cut"), list(itertools.product([f.name for f in registry.FORMATS], [1, 20, 200]))
)
def test_a_cut_file_loses_its_last_record_at_most_and_never_fails(
    tmp_path: Path, name: str, cut: int
) -> None:
    folder = fixtures.write(tmp_path / "in", name)
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        path.write_bytes(path.read_bytes()[:-cut])
    done = None
    with contextlib.suppress(InputError):  # nothing may be left of a file
        done = import_trace([folder], tmp_path / "out.jsonl", format_name=name)
    if done is not None:
        with open_trace(done.path) as trace:
            assert sum(trace.turn_count(s.id) for s in trace.sessions) == done.counts["turns"] > 0
