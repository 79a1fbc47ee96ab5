import msgspec
import pytest

from loadgen import tokens
from loadgen.corpus import messages
from loadgen.corpus.build import build
from loadgen.corpus.context import load_set
from loadgen.corpus.material import Material
from loadgen.corpus.recipe import Prompt, resolve
from loadgen.corpus.trace import from_conversations, in_message_form
from loadgen.errors import InputError
from loadgen.trace.reader import open_trace

TEKKEN = tokens.get("tekken")


@pytest.fixture
def conversations(tmp_path, repository):
    prompt = Prompt(form="messages", layout="tenants", tenants=2, shared_tokens=3500)
    recipe = msgspec.structs.replace(resolve(str(repository)), prompt=prompt)
    build(recipe, n=4, tokens=6000, out=tmp_path / "contexts", tokenizer=TEKKEN)
    return tmp_path / "contexts"


def resolved(trace, value):
    return trace.blob(value["blob"]).json if isinstance(value, dict) else value


def test_the_trace_says_what_the_contexts_say(tmp_path, conversations):
    assert in_message_form(conversations)
    made = from_conversations(
        conversations, tmp_path / "t.jsonl", sessions=3, turns=3, new_tokens=50, output_tokens=20,
        new_text=Material(conversations, TEKKEN).text,
    )  # fmt: skip
    trace = open_trace(made)
    assert [session.group for session in trace.sessions] == ["tenant-0", "tenant-1", "tenant-0"]
    for session, context in zip(trace.sessions, load_set(conversations).contexts, strict=False):
        expected = messages.read((conversations / context.file).read_bytes())
        assert trace.blob(session.system).json == expected.system
        assert trace.blob(session.tools).json == expected.tools
        first, second, third = trace.turns(session.id)
        sent = [{**message, "content": resolved(trace, message["content"])} for message in first.append]
        assert sent == expected.messages
        assert [turn.content_tokens for turn in (first, second, third)] == [6000, 6070, 6140]
        texts = [
            first.answer["content"],
            second.append[0]["content"],
            second.answer["content"],
            third.append[0]["content"],
        ]
        assert [TEKKEN.count(text) for text in texts] == [20, 50, 20, 50]
        assert len(set(texts)) == 4


def test_too_few_contexts(tmp_path, conversations):
    with pytest.raises(InputError, match="holds 4 contexts; 5 sessions"):
        from_conversations(
            conversations, tmp_path / "t.jsonl", sessions=5, turns=1, new_tokens=1, output_tokens=1,
            new_text=lambda *_: "x",
        )  # fmt: skip
    assert not (tmp_path / "t.jsonl").exists()


def test_documents_are_not_conversations(tmp_path, repository):
    build(resolve(str(repository)), n=1, tokens=600, out=tmp_path / "contexts", tokenizer=TEKKEN)
    assert not in_message_form(tmp_path / "contexts")
