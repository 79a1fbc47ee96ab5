import json

import msgspec
import pytest
import served

from loadgen import tokens
from loadgen.corpus import messages
from loadgen.corpus.build import build_and_account
from loadgen.corpus.document import conversation
from loadgen.corpus.prefix import BLOCK
from loadgen.corpus.recipe import Prompt, resolve
from loadgen.corpus.template import Endpoint, EndpointRendering
from loadgen.errors import InputError


def build_at(url, repository, out, *, api="chat", own=False, tokens_wanted=6000, **prompt):
    recipe = msgspec.structs.replace(resolve(str(repository)), prompt=Prompt(**prompt))
    rendering = EndpointRendering(Endpoint(url), api, None if own else tokens.get("tekken"))
    return build_and_account(
        recipe, n=3, tokens=tokens_wanted, out=out, tokenizer=rendering.tokenizer, endpoint=rendering
    )


def prompt_tokens(render, out, context):
    """What the server would count for the context on disk."""
    data = (out / context.file).read_bytes()
    if context.file.endswith(".txt"):
        return len(render([{"role": "user", "content": data.decode()}], None))
    found = messages.read(data)
    return len(render([{"role": "system", "content": found.system}, *found.messages], found.tools))


@pytest.mark.parametrize("render", [served.plain, served.tools_late, served.words_around])
@pytest.mark.parametrize("form", ["document", "messages"])
@pytest.mark.parametrize("own", [False, True], ids=["tekken", "server"])
def test_prompts_are_exact_at_the_endpoint(tmp_path, repository, render, form, own):
    with served.endpoint(render) as url:
        built = build_at(url, repository, tmp_path / "out", form=form, own=own, layout="distinct")
    for context in built.contexts.contexts:
        assert prompt_tokens(render, tmp_path / "out", context) == 6000
        assert context.extra["endpoint"]["prompt_tokens"] == 6000
        assert context.tokens < 6000
        if form == "document":
            assert context.tokens == tokens.get("tekken").count((tmp_path / "out" / context.file).read_text())


@pytest.mark.parametrize("layout", ["shared-prefix", "tenants"])
@pytest.mark.parametrize("form", ["document", "messages"])
def test_groups_share_no_more_when_rendered(tmp_path, repository, layout, form):
    with served.endpoint() as url:
        built = build_at(
            url, repository, tmp_path / "out", form=form, layout=layout, shared_tokens=4000, tenants=2
        )
    shared = built.contexts.contexts[0].extra["endpoint"]["max_common_prefix"]
    assert (
        4000 <= shared < 4500
    )  # this template writes the tools with more spaces than they were counted with


def test_completions(tmp_path, repository):
    with served.endpoint() as url:
        built = build_at(url, repository, tmp_path / "out", api="completions")
        assert [context.tokens for context in built.contexts.contexts] == [5999] * 3
        with pytest.raises(InputError, match="document form"):
            build_at(url, repository, tmp_path / "out", api="completions", form="messages")


def test_another_tokenizer_is_refused_with_the_difference(tmp_path, repository):
    with (
        served.endpoint(encode=lambda text: list(text.encode())) as url,
        pytest.raises(
            InputError, match=r"m counts [\d,]+ tokens in a text of [\d,]+ tekken tokens \(\+\d+\.\d%\)"
        ),
    ):
        build_at(url, repository, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]


def test_template_that_shares_more_than_it_should(tmp_path, repository):
    def same_for_all(messages, tools):
        return (
            list(range(2000, 2100))
            + served.plain(messages, tools)[:1]
            + [7] * len(served.plain(messages, tools)[1:])
        )

    with served.endpoint(same_for_all) as url, pytest.raises(InputError, match="share their first"):
        build_at(url, repository, tmp_path / "out")


def test_overhead_is_measured_once_and_kept(repository):
    seen = []
    with served.endpoint(seen=seen) as url:
        first = EndpointRendering(Endpoint(url), "chat", tokens.get("tekken"))
        assert first.overhead(conversation("anything at all")) == 3
        asked = len(seen)
        assert first.overhead(conversation("something else")) == 3
        assert len(seen) == asked
        second = EndpointRendering(Endpoint(url), "chat", tokens.get("tekken"))
        asked = len(seen)
        assert second.overhead(conversation("x")) == 3
        assert len(seen) == asked
    with served.endpoint(served.words_around) as url:
        other = EndpointRendering(Endpoint(url), "chat", tokens.get("tekken"))
        assert other.fingerprint != first.fingerprint
        assert other.overhead(conversation("x")) != 3


def test_own_prefix():
    with served.endpoint() as url:
        rendering = EndpointRendering(Endpoint(url), "chat", tokens.get("tekken"))
        assert rendering.own_prefix(conversation("x")) == 2 < BLOCK  # [bos] [user]


def test_key_is_sent_and_not_told(tmp_path, repository, monkeypatch):
    seen = []
    with served.endpoint(seen=seen) as url:
        Endpoint(url + "/v1", key="sk-secret").tokens({"prompt": "x", "add_special_tokens": False})
    assert seen[0][2]["Authorization"] == "Bearer sk-secret"
    with pytest.raises(InputError) as caught:
        Endpoint("http://user:sk-secret@127.0.0.1:9/v1", key="sk-secret")
    assert "sk-secret" not in str(caught.value)


def test_endpoints_that_cannot_be_used():
    with pytest.raises(InputError, match="cannot be reached"):
        Endpoint("http://127.0.0.1:9")
    for url in ("localhost:8000", "ftp://x", ""):
        with pytest.raises(InputError, match="http://HOST:PORT"):
            Endpoint(url)
    with served.endpoint(models=("a", "b")) as url:
        with pytest.raises(InputError, match="does not serve exactly one model"):
            Endpoint(url)
        with pytest.raises(InputError, match="does not serve 'c'; it serves a, b"):
            Endpoint(url, model="c")
        assert Endpoint(url, model="b").model == "b"
        with pytest.raises(InputError, match="HTTP 404"):
            Endpoint(url + "/elsewhere", model="b").text([1])


def test_damaged_cache_is_measured_again(tmp_path):
    with served.endpoint() as url:
        rendering = EndpointRendering(Endpoint(url), "chat", tokens.get("tekken"))
        rendering.overhead(conversation("x"))
        (file,) = (tmp_path / "cache" / "templates").glob("*.json")
        assert list(json.loads(file.read_text()).values()) == [3]
        file.write_text("{")
        assert EndpointRendering(Endpoint(url), "chat", tokens.get("tekken")).overhead(conversation("x")) == 3
