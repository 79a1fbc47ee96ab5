import msgspec
import pytest

from loadgen import tokens
from loadgen.corpus.build import build
from loadgen.corpus.context import load_set
from loadgen.corpus.material import Material
from loadgen.corpus.recipe import Later, resolve
from loadgen.errors import InputError


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.get("tekken")


@pytest.fixture(scope="session")
def tested(tmp_path_factory, git):
    """A repository with tests and a change by somebody with a name."""
    root = tmp_path_factory.mktemp("tested")
    git(root, "init", "-q", "-b", "main")
    (root / "tests").mkdir()
    for number in range(30):
        source = "".join(
            f"def helper_{number}_{k}(argument):\n    return argument_{k} + {k}\n\n" for k in range(150)
        )
        (root / f"code_{number}.py").write_text(source)
        test = "".join(
            f"def test_case_{number}_{k}():\n    assert helper_{number}_{k}(1)\n\n" for k in range(40)
        )
        (root / "tests" / f"test_{number}.py").write_text(test)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    for number in range(4):
        (root / f"code_{number}.py").write_text(
            (root / f"code_{number}.py").read_text() + "\nCHANGED = True\n"
        )
        git(
            root,
            "commit",
            "-q",
            "-a",
            "-m",
            f"Change number {number}\n\nSigned-off-by: Jane Doe <jane@example.org>",
        )
    return root


def recipe_for(path, **shares):
    everything = {"read": 0, "grep": 0, "diff": 0, "test": 0} | shares
    return msgspec.structs.replace(resolve(str(path)), later=Later(**everything))


def test_exact_and_the_same_everywhere(tested, tokenizer):
    one, two = (Material(resolve(str(tested)), tokenizer, seed=3) for _ in range(2))
    sizes = [37, 500, 501, 1200, 64]
    for session in (0, 4):
        for turn, size in enumerate(sizes, 1):
            text = one.text(session, turn, size)
            assert tokenizer.count(text) == size
            assert text == text.strip()
            assert text[0] != "/"
            assert two.text(session, turn, size) == text
    assert Material(resolve(str(tested)), tokenizer, seed=4).text(0, 1, 500) != one.text(1, 1, 500)


@pytest.mark.parametrize("kind", ["read", "grep", "diff", "test"])
def test_never_the_same_line_twice(tested, tokenizer, kind):
    """Every line of a read or a search carries a name that no other line has, so a repeated one is repeated text."""
    material = Material(recipe_for(tested, **{kind: 1}), tokenizer)
    text = "\n".join(
        material.text(0, turn, 90 if kind == "diff" else 700) for turn in range(1, 4 if kind == "diff" else 9)
    )
    marks = [
        line
        for line in text.splitlines()
        if line.startswith(
            f"<{ {'read': 'file', 'grep': 'search', 'diff': 'commit', 'test': 'tests'}[kind] } "
        )
    ]
    assert marks
    assert len(marks) == len(set(marks))
    lines = [line for line in text.splitlines() if "helper_" in line and kind in ("read", "grep")]
    cut_ends = 8  # the last line of a turn may be cut
    assert len(lines) - len(set(lines)) <= cut_ends


def test_changes_show_no_people(tested, tokenizer):
    text = Material(recipe_for(tested, diff=1), tokenizer).text(0, 1, 200)
    assert "+CHANGED = True" in text
    assert "Change number" in text
    assert "Jane" not in text
    assert "a@example.org" not in text


def test_test_reports_quote_the_source(tested, tokenizer):
    text = Material(recipe_for(tested, test=1), tokenizer).text(0, 1, 3000)
    assert "ok  test_case_" in text
    assert "FAIL  test_case_" in text
    assert "assert helper_" in text


def test_folder_without_history_has_the_other_kinds(folder, tokenizer):
    assert tokenizer.count(Material(recipe_for(folder, diff=5, read=1), tokenizer).text(0, 1, 800)) == 800


def test_sessions_do_not_disturb_each_other(tested, tokenizer):
    one, two = (Material(resolve(str(tested)), tokenizer) for _ in range(2))
    alone = [one.text(0, turn, 40 * turn) for turn in range(1, 9)]
    among = []
    for turn in range(1, 9):
        two.text(turn, 1, 700)
        among.append(two.text(0, turn, 40 * turn))
    assert among == alone


def test_nothing_of_the_context_again(tmp_path, repository, tokenizer):
    build(resolve(str(repository)), n=3, tokens=4000, out=tmp_path / "out", tokenizer=tokenizer)
    material = Material(tmp_path / "out", tokenizer)
    for session, context in enumerate(load_set(tmp_path / "out").contexts):
        assert context.files
        text = material.text(session, 1, 6000)
        assert not [path for path in context.files if f'path="{path}:' in text]


def test_the_commit_is_the_contexts(tmp_path, repository, git, tokenizer):
    found = build(resolve(str(repository), "v1"), n=1, tokens=500, out=tmp_path / "out", tokenizer=tokenizer)
    assert found.contexts[0].commit == git(repository, "rev-parse", "v1")
    text = "".join(Material(tmp_path / "out", tokenizer).text(0, turn, 3000) for turn in range(1, 6))
    assert "# changed" not in text


def test_exhausted(tested, tokenizer):
    material = Material(recipe_for(tested, diff=1), tokenizer)
    with pytest.raises(InputError, match="turn 1 of session 0"):
        material.text(0, 1, 100_000)


def test_not_a_folder_of_contexts(tmp_path, tokenizer, repository):
    build(resolve(str(repository)), n=1, tokens=500, out=tmp_path / "out", tokenizer=tokenizer)
    (tmp_path / "out" / "source.json").unlink()
    with pytest.raises(InputError, match="does not say what it was built from"):
        Material(tmp_path / "out", tokenizer)


def test_relative_paths_are_found_from_elsewhere(tmp_path, repository, tokenizer, monkeypatch):
    monkeypatch.chdir(repository)
    build(resolve("."), n=1, tokens=500, out=tmp_path / "out", tokenizer=tokenizer)
    monkeypatch.chdir(tmp_path)
    assert tokenizer.count(Material(tmp_path / "out", tokenizer).text(0, 1, 300)) == 300
