import pytest

from loadgen.corpus.agent import recipe_hash
from loadgen.corpus.library import open_source
from loadgen.corpus.recipe import Files, Origin, Prompt, Recipe, load, resolve
from loadgen.errors import InputError


def test_names(repository):
    assert resolve("stdlib").source.url == "stdlib"
    assert resolve(str(repository), "v1").source.rev == "v1"
    assert resolve("https://example.org/a/b.git").name == "b"
    assert resolve("git@example.org:a/b.git").name == "b"


@pytest.mark.parametrize("name", ["nothing-here", "/nothing/here", "nothing.toml", "../nothing"])
def test_nothing_of_that_name(name):
    with pytest.raises(InputError, match=r"nothing|cannot be read"):
        resolve(name)


def test_recipe_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[source]\nurl = "code"\n[prompt]\nlayout = "rotated"\n')
    recipe = resolve(str(file))
    assert recipe.name == "mine"
    assert recipe.source.url == str(tmp_path / "code")
    assert recipe.prompt.layout == "rotated"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name = ", "not TOML"),
        ("nmae = 'x'\n", "nmae"),
        ("[files]\nmax_bytes = 0\n", r"files\.max_bytes"),
        ("[prompt]\nlayout = 'spiral'\n", "spiral"),
        ("[later]\ndiff = -1\n", r"later\.diff"),
    ],
)
def test_bad_recipe(tmp_path, content, said):
    file = tmp_path / "bad.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        load(file)
    assert str(file) in str(caught.value)


def test_hash_follows_what_decides_the_text():
    def digest(**prompt):
        return recipe_hash(Recipe(name="x", source=Origin(url="anywhere"), prompt=Prompt(**prompt)))

    base = recipe_hash(Recipe(name="x"))
    assert digest() == base  # the source is recorded beside it
    assert len({base, digest(seed=1), digest(system="s"), digest(form="messages"), digest(tools=False)}) == 5
    assert recipe_hash(Recipe(name="y")) == base
    assert recipe_hash(Recipe(name="x", files=Files(lock_files=True))) != base


def test_no_such_revision(repository):
    with pytest.raises(InputError, match="no revision 'v9'"):
        open_source(resolve(str(repository), "v9"))
    with pytest.raises(InputError, match="not a revision"):
        open_source(resolve(str(repository), "--upload-pack=x"))


def test_rev_of_a_folder(folder):
    with pytest.raises(InputError, match="not a git repository"):
        open_source(resolve(str(folder), "v1"))
    with pytest.raises(InputError, match="not a git repository"):
        open_source(resolve("stdlib", "v1"))


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch /tmp/x'",
        "http://example.org/a.git",
        "git://example.org/a",
        "fd::3",
        "-oProxyCommand=x:y",
    ],
)
def test_urls_that_are_not_cloned(url):
    with pytest.raises(InputError, match=r"https, ssh and file|not allowed|no repository"):
        open_source(resolve(url))


def test_empty_repository(tmp_path, git):
    git(tmp_path, "init", "-q")
    with pytest.raises(InputError, match="has no commit yet"):
        open_source(resolve(str(tmp_path)))
