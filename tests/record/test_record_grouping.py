"""Grouping by the rules: each with the smallest story that shows it."""

from __future__ import annotations

import json
from array import array
from typing import Any

from loadgen.record.grouping import Asked, Grouper, Place
from loadgen.record.hints import gap_kind
from loadgen.record.identity import Identity
from loadgen.record.store import Entry, gist_of
from loadgen.trace.prefix import message_digest

UNKNOWN = Identity(rule="content")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"id-{name}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in calls
        ]
    return message


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "x", "content": text}


class Story:
    """Asks one after the other; each takes two seconds, with one second between, unless told."""

    def __init__(self) -> None:
        self.grouper = Grouper()
        self.now = 0

    def ask(
        self,
        messages: list[dict[str, Any]],
        answer: dict[str, Any] | None = None,
        *,
        identity: Identity = UNKNOWN,
        prefix: bytes = b"p",
        whole: bool = True,
        start_s: float | None = None,
        **fields: Any,
    ) -> Place:
        start = self.now + 10**9 if start_s is None else int(start_s * 1e9)
        self.now = start + 2 * 10**9
        asked = Asked(
            identity=identity,
            prefix=prefix,
            keys=[message_digest(m) for m in messages],
            messages=messages,
            gists=frozenset(gist for m in messages if (gist := gist_of(m))),
            start_ns=start,
            end_ns=self.now,
            answered=whole,
            **fields,
        )
        place = self.grouper.place(asked)
        entry = None
        if answer is not None:
            entry = Entry(
                message=answer, key=message_digest(answer), gist=gist_of(answer), tokens=1, ids=array("I")
            )
        self.grouper.answered(place, asked, entry)
        return place


def where(place: Place) -> tuple[str, str, int, int, int | None]:
    return place.chain.id, place.relation, place.index, place.attempt, place.keep


def test_a_conversation_goes_on() -> None:
    story = Story()
    one = [user("fix it")]
    a1, a2 = said("I look", ("read", {})), said("done")
    assert where(story.ask(one, a1)) == ("s1", "new", 0, 1, None)
    two = [*one, a1, result("text")]
    place = story.ask(two, a2)
    assert where(place) == ("s1", "next", 1, 1, None)
    assert place.append_from == 2
    assert place.since_ns == 3 * 10**9
    assert where(story.ask([*two, a2, user("thanks")], said("welcome"))) == ("s1", "next", 2, 1, None)


def test_two_conversations_side_by_side() -> None:
    story = Story()
    a, b = said("about a"), said("about b")
    story.ask([user("a")], a)
    story.ask([user("b")], b)
    assert where(story.ask([user("a"), a, user("more")], said("x")))[:3] == ("s1", "next", 1)
    assert where(story.ask([user("b"), b, user("more")], said("y")))[:3] == ("s2", "next", 1)


def test_the_same_task_twice_is_two_sessions_but_a_retry_is_one() -> None:
    story = Story()
    task = [user("same task")]
    story.ask(task, said("first try"))
    assert where(story.ask(task, said("second run"))) == ("s2", "new", 0, 1, None)
    assert where(story.ask(task, None, retry=1))[:4] == ("s2", "attempt", 0, 2)
    other = [user("other")]
    story.ask(other, said("par"), whole=False)
    place = story.ask(other, said("partial no more"))
    assert where(place) == ("s3", "attempt", 0, 2, None)
    assert where(story.ask([*other, said("partial no more"), user("go on")], said("ok")))[:3] == (
        "s3",
        "next",
        1,
    )


def test_parallel_runs_of_one_task_do_not_mix() -> None:
    story = Story()
    task, a, b = [user("task")], said("way a"), said("way b")
    story.ask(task, a, start_s=0)
    story.ask(task, b, start_s=0.5)
    assert where(story.ask([*task, b, user("go")], said("b2"), start_s=4))[:3] == ("s2", "next", 1)
    assert where(story.ask([*task, a, user("go")], said("a2"), start_s=4))[:3] == ("s1", "next", 1)


def test_answers_that_the_client_rewrites() -> None:
    story = Story()
    story.ask([user("a")], said("I edit ", ("edit", {"old": 1})))
    echo = said("I edit", ("edit", {"old": 1, "all": False}))
    place = story.ask([user("a"), echo, result("ok")], said("fine "))
    assert where(place) == ("s1", "edited_answer", 1, 1, 1)
    assert place.append_from == 1
    again = [user("a"), echo, result("ok"), said("fine"), user("b")]
    assert where(story.ask(again, said("c"))) == ("s1", "edited_answer", 2, 1, 3)


def test_rewind() -> None:
    story = Story()
    a1, a2 = said("one"), said("two")
    story.ask([user("a")], a1)
    story.ask([user("a"), a1, user("b")], a2)
    place = story.ask([user("a"), a1, user("no, c")], said("three"))
    assert where(place) == ("s1", "rewind", 2, 1, 2)


def test_examples_in_the_first_prompt_link_nothing() -> None:
    """aider begins every session with the same example answers, and moves its files behind the history."""
    examples = [user("example"), said("example answer")]
    files = [user("file v1"), said("Ok.")]
    story = Story()
    story.ask([*examples, *files, user("task one")], said("done one"))
    assert where(story.ask([*examples, *files, user("task two")], said("Ok.")))[:2] == ("s2", "new")
    place = story.ask(
        [*examples, user("task one"), said("done one"), user("file v2"), said("Ok."), user("x")], said("y")
    )
    assert where(place) == ("s1", "rewind", 1, 1, 2)


def test_compaction_by_summary_and_by_first_message() -> None:
    story = Story()
    a1, a2 = said("one"), said("two")
    first = user("the task")
    story.ask([first], a1)
    story.ask([first, a1, user("b")], a2)
    summary = user("This session is being continued from a previous conversation. Summary: …")
    assert where(story.ask([summary], said("three"))) == ("s1", "compaction", 2, 1, 0)
    other = Story()
    other.ask([first], a1)
    other.ask([first, a1, user("b")], a2)
    condensed = [first, user("<events condensed>")]
    assert where(other.ask(condensed, said("four"))) == ("s1", "compaction", 2, 1, 1)


def test_a_short_new_task_is_no_compaction() -> None:
    story = Story()
    story.ask([user("a")], said("one"))
    story.ask([user("a"), said("one"), user("b")], said("two"))
    assert where(story.ask([user("a different task")], said("three")))[:2] == ("s2", "new")


def test_the_same_words_about_the_place_are_no_compaction() -> None:
    story = Story()
    place = user("you are in /repo")
    story.ask([place, user("a")], said("one"))
    story.ask([place, user("a"), said("one"), user("b")], said("two"))
    assert where(story.ask([place, user("another task")], said("three")))[:2] == ("s2", "new")


def test_subagent_by_content() -> None:
    story = Story()
    spawn = said("I delegate", ("Task", {"description": "d", "prompt": "read the README and report"}))
    story.ask([user("a")], spawn)
    place = story.ask([user("<reminder>\nread the README and report")], said("sub"), prefix=b"other")
    assert where(place)[:2] == ("s2", "subagent")
    assert (place.chain.agent, place.chain.parent and place.chain.parent.id, place.chain.parent_turn) == (
        "sub",
        "s1",
        0,
    )
    assert (place.call_id, place.wait) == ("id-Task", True)
    sub_end = story.now
    place = story.ask([user("a"), spawn, result("report")], said("b"))
    assert where(place)[:3] == ("s1", "next", 1)
    assert place.since_ns == sub_end  # the gap begins when the awaited child had ended


def test_background_subagents_are_not_awaited() -> None:
    story = Story()
    spawn = said("go", ("Task", {"prompt": "watch the logs for errors", "run_in_background": True}))
    story.ask([user("a")], spawn)
    assert story.ask([user("watch the logs for errors")], said("s"), prefix=b"o").wait is False


def test_subagent_by_header_without_matching_text() -> None:
    story = Story()
    main = Identity(rule="claude-code", conversation="C")
    sub = Identity(rule="claude-code", conversation="C", agent="A", parent="")
    story.ask([user("a")], said("x"), identity=main)
    place = story.ask([user("whatever")], said("y"), identity=sub, prefix=b"q")
    assert (place.relation, place.chain.parent and place.chain.parent.id, place.wait) == (
        "subagent",
        "s1",
        False,
    )
    assert where(story.ask([user("whatever"), said("y"), user("z")], said("w"), identity=sub, prefix=b"q"))[
        :3
    ] == ("s2", "next", 1)


def test_conversations_with_names_do_not_mix_by_content() -> None:
    story = Story()
    one, two = (Identity(rule="x-session-id", conversation=name) for name in "12")
    a = said("x")
    story.ask([user("a")], a, identity=one)
    assert where(story.ask([user("a"), a, user("b")], said("y"), identity=two))[:2] == ("s2", "new")


def test_a_named_conversation_with_rewritten_history_stays_one_session() -> None:
    story = Story()
    name = Identity(rule="codex", conversation="1")
    story.ask([user("env 1"), user("a")], said("x"), identity=name)
    place = story.ask([user("env 2"), user("a"), said("y"), user("b")], said("z"), identity=name)
    assert where(place) == ("s1", "rewind", 1, 1, 0)


def test_changed_tools_begin_a_linked_session() -> None:
    story = Story()
    a = said("x")
    story.ask([user("a")], a)
    place = story.ask([user("a"), a, user("b")], said("y"), prefix=b"more tools")
    assert (
        place.chain.id,
        place.relation,
        place.chain.parent and place.chain.parent.id,
        place.chain.parent_turn,
    ) == (
        "s2",
        "prefix_changed",
        "s1",
        0,
    )
    assert where(story.ask([user("a"), a, user("b"), said("y"), user("c")], said("z"), prefix=b"more tools"))[
        :3
    ] == ("s2", "next", 1)


def test_a_resumed_conversation_whose_system_prompt_and_history_changed_is_linked() -> None:
    story = Story()
    name = Identity(rule="claude-code", conversation="1")
    story.ask([user("a")], said("x"), identity=name)
    summary = user("This session is being continued from a previous conversation")
    place = story.ask([summary, user("b")], said("y"), identity=name, prefix=b"new git status")
    assert (place.chain.id, place.relation, place.chain.parent and place.chain.parent.id) == (
        "s2",
        "prefix_changed",
        "s1",
    )
    assert story.ask([user("fresh")], said("z"), identity=name, prefix=b"third").relation == "new"


def test_fork_while_the_parent_still_runs() -> None:
    story = Story()
    a = said("x")
    story.ask([user("a")], a, start_s=0)
    story.ask([user("a"), a, user("b")], said("y"), start_s=3)
    place = story.ask([user("a"), a, user("side question")], said("z"), start_s=4)
    assert (
        place.chain.id,
        place.relation,
        place.chain.parent and place.chain.parent.id,
        place.chain.parent_turn,
    ) == (
        "s2",
        "fork",
        "s1",
        0,
    )


def test_utility_calls_are_sessions_of_their_own() -> None:
    story = Story()
    name = Identity(rule="claude-code", conversation="1")
    a = said("x")
    story.ask([user("a")], a, identity=name)
    title = story.ask(
        [user("summarise in a title")], said("Title"), identity=name, prefix=b"t", utility="title"
    )
    assert (title.chain.agent, title.relation) == ("utility", "new")
    assert where(story.ask([user("a"), a, user("b")], said("y"), identity=name))[:3] == ("s1", "next", 1)


def test_gap_kinds() -> None:
    assert gap_kind([user("a"), said("x"), result("r"), user("and more")], 50) == "tool"
    assert gap_kind([user("a"), said("x"), user("typed")], 50) == "human"
    assert gap_kind([user("a"), said("x"), user("observation as text")], 0.3) == "tool"
    assert gap_kind([result("r"), said("x"), user("typed")], 50) == "human"
