import hashlib
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.corpus.build import build, build_and_account
from loadgen.corpus.context import load_set
from loadgen.corpus.prefix import BLOCK, common
from loadgen.corpus.recipe import Prompt, resolve
from loadgen.errors import InputError


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.get("tekken")


def texts(out):
    return [(out / context.file).read_text() for context in load_set(out).contexts]


def digest(out):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


@pytest.mark.parametrize("wanted", [64, 101, 1500, 2777])
def test_exact_distinct_and_recorded(tmp_path, repository, git, tokenizer, wanted):
    found = build(resolve(str(repository)), n=4, tokens=wanted, out=tmp_path / "out", tokenizer=tokenizer)
    assert found == load_set(tmp_path / "out")
    ids = [tokenizer.encode(text) for text in texts(tmp_path / "out")]
    assert [len(each) for each in ids] == [wanted] * 4
    longest = max(common(a, b) for a, b in combinations(ids, 2))
    assert longest == found.max_common_prefix < BLOCK
    for context, text in zip(found.contexts, texts(tmp_path / "out"), strict=True):
        assert not text[0].isspace()
        assert text[0] != "/"
        assert not text[-1].isspace()
        assert context.sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert context.bytes == len(text.encode())
        assert context.commit == git(repository, "rev-parse", "HEAD")
        assert context.files
    used = [path for context in found.contexts for path in context.files]
    assert len(used) == len(set(used))  # layout distinct: no file twice


def test_nonce_in_front_adds_up(tmp_path, repository, tokenizer):
    build(resolve(str(repository)), n=2, tokens=900, out=tmp_path / "out", tokenizer=tokenizer)
    nonce = "0123456789\n"
    for text in texts(tmp_path / "out"):
        assert tokenizer.count(nonce + text) == tokenizer.count(nonce) + 900


def test_same_bytes_with_any_number_of_processes(tmp_path, repository, tokenizer):
    for name, processes in (("a", 1), ("b", 3), ("c", None)):
        build(
            resolve(str(repository)),
            n=5,
            tokens=3000,
            out=tmp_path / name,
            tokenizer=tokenizer,
            processes=processes,
        )
    assert digest(tmp_path / "a") == digest(tmp_path / "b") == digest(tmp_path / "c")


def test_folder_and_repository_give_the_same_text(tmp_path, repository, folder, tokenizer):
    recipe = resolve(str(repository), "v1")
    build(recipe, n=3, tokens=2000, out=tmp_path / "git", tokenizer=tokenizer)
    recipe = resolve(str(folder))
    build(recipe, n=3, tokens=2000, out=tmp_path / "folder", tokenizer=tokenizer)
    build(resolve(f"file://{repository}", "v1"), n=3, tokens=2000, out=tmp_path / "url", tokenizer=tokenizer)
    assert texts(tmp_path / "git") == texts(tmp_path / "url")
    assert texts(tmp_path / "git") == texts(tmp_path / "folder")


def test_too_little_text_for_distinct_is_rotated(tmp_path, repository, tokenizer):
    built = build_and_account(
        resolve(str(repository)), n=4, tokens=20_000, out=tmp_path / "out", tokenizer=tokenizer
    )
    assert built.outcome.layout == "rotated"
    assert "too little text for distinct" in built.outcome.remarks[0]
    assert [tokenizer.count(text) for text in texts(tmp_path / "out")] == [20_000] * 4
    sets = [set(context.files) for context in built.contexts.contexts]
    assert len(sets[0] & sets[1]) > 0.75 * len(sets[0])
    assert built.contexts.max_common_prefix < BLOCK


def test_distinct_on_request_is_refused(tmp_path, repository, tokenizer):
    recipe = resolve(str(repository))
    recipe.prompt.layout = "distinct"
    with pytest.raises(InputError, match="too little text for 4 distinct contexts"):
        build(recipe, n=4, tokens=20_000, out=tmp_path / "out", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_far_too_little_text(tmp_path, repository, tokenizer):
    with pytest.raises(InputError, match="fewer than one context of 10,000,000"):
        build(resolve(str(repository)), n=1, tokens=10_000_000, out=tmp_path / "out", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_foreign_folder_is_left_alone(tmp_path, repository, tokenizer):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        build(resolve(str(repository)), n=1, tokens=100, out=out, tokenizer=tokenizer)
    assert (out / "thesis.tex").read_text() == "precious"


def test_earlier_contexts_are_replaced(tmp_path, repository, tokenizer):
    for n in (3, 2):
        build(resolve(str(repository)), n=n, tokens=100, out=tmp_path / "out", tokenizer=tokenizer)
    assert len(load_set(tmp_path / "out").contexts) == 2
    assert len(list((tmp_path / "out").glob("context-*.txt"))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("n", "wanted"), [(0, 1000), (-1, 1000), (1, 0), (1, 63)])
def test_sizes_that_make_no_sense(tmp_path, repository, tokenizer, n, wanted):
    with pytest.raises(InputError, match="at least"):
        build(resolve(str(repository)), n=n, tokens=wanted, out=tmp_path / "out", tokenizer=tokenizer)


names = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}){0,2}\.(py|c|md|txt)", fullmatch=True)
contents = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=400).map(str.encode),
    st.binary(max_size=200),
    st.integers(1, 300).map(lambda n: b"".join(b"line %d of %d\r\n" % (k, n) for k in range(n))),
)


@settings(max_examples=30, deadline=None)
@given(
    files=st.dictionaries(names, contents, min_size=1, max_size=12),
    prompt=st.fixed_dictionaries(
        {
            "layout": st.sampled_from(["auto", "distinct", "rotated", "shared-prefix", "tenants"]),
            "seed": st.integers(0, 3),
            "shared_tokens": st.just(70),
            "tenants": st.just(2),
            "tools": st.just(False),
            "system": st.just("Work."),
        }
    ),
    n=st.integers(1, 4),
    wanted=st.integers(140, 400),
)
def test_rebuilt_byte_for_byte_whatever_the_files(tmp_path_factory, tokenizer, files, prompt, n, wanted):
    """The order in which files were written, the number of threads and the learnt estimate decide nothing."""
    outcomes = []
    for order, processes in ((sorted(files), 1), (sorted(files, reverse=True), 3)):
        root = tmp_path_factory.mktemp("any")
        for name in order:
            path = root / "code" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        recipe = msgspec.structs.replace(resolve(str(root / "code")), prompt=msgspec.convert(prompt, Prompt))
        try:
            build(recipe, n=n, tokens=wanted, out=root / "out", tokenizer=tokenizer, processes=processes)
            outcomes.append(
                {name: hash_ for name, hash_ in digest(root / "out").items() if name.endswith(".txt")}
            )
            assert [tokenizer.count(text) for text in texts(root / "out")] == [wanted] * n
        except InputError as error:
            outcomes.append(str(error).replace(str(root), ""))
            assert not (root / "out").exists()
    assert outcomes[0] == outcomes[1]
