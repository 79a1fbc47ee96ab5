import json
import tomllib

import msgspec
import pytest
import served

from loadgen import paths
from loadgen.cli import main
from loadgen.corpus import starter
from loadgen.corpus.context import load_set
from loadgen.corpus.recipe import Recipe, load, resolve

SHIPPED = sorted(path.stem for path in paths.data_dir("corpora").glob("*.toml"))


def test_build_for_people(tmp_path, repository, capsys):
    assert (
        main(["corpus", "build", str(repository), "-n", "2", "--tokens", "700", "-o", str(tmp_path / "out")])
        == 0
    )
    printed = capsys.readouterr().out
    assert "2 contexts of exactly 700 tekken tokens, layout distinct" in printed
    assert "of 40 files" in printed
    assert load_set(tmp_path / "out").tokens == 700


def test_build_for_machines(tmp_path, repository, capsys):
    arguments = [
        "corpus",
        "build",
        str(repository),
        "-n",
        "2",
        "--tokens",
        "700",
        "--json",
        "--layout",
        "rotated",
        "--seed",
        "3",
    ]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["layout"] == "rotated"
    assert found["contexts"] == 2
    assert load_set(paths.Path(found["folder"])).content_hash == found["content_hash"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nothing/here"], "no repository, folder or recipe called"),
        (["REPO", "-n", "0"], "at least one context"),
        (["REPO", "--processes", "0"], "at least one core"),
        (["REPO", "--tokens", "99999999"], "too little text|holds"),
        (["REPO", "--rev", "nope"], "no revision 'nope'"),
        (["REPO", "--tokenizer", "bert"], "no tokenizer is called 'bert'"),
        (["REPO", "--tokenizer", "server"], "needs --host"),
        (["REPO", "--model", "m"], "only with --host"),
        (["REPO", "--host", "http://127.0.0.1:9"], "cannot be reached"),
        (["REPO", "--tokens", "100", "-o", "/proc/nothing/out"], "cannot be written"),
        (["ext::sh -c true"], "https, ssh and file"),
        (["benchmark", "--repo", "/nothing/here"], "does not exist"),
    ],
)
def test_one_sentence_and_exit_2(repository, capsys, arguments, said):
    import re

    arguments = [str(repository) if argument == "REPO" else argument for argument in arguments]
    assert main(["corpus", "build", *arguments]) == 2
    printed = capsys.readouterr()
    assert re.search(said, printed.err), printed.err
    assert printed.err.startswith("loadgen: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("kind", ["nothing", "file", "empty"])
def test_check_of_no_contexts(tmp_path, capsys, kind):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    assert main(["corpus", "check", str(tmp_path / kind)]) == 2
    assert "holds no manifest.json" in capsys.readouterr().err


def test_init_writes_every_key_with_its_default(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["corpus", "init", "-o", "mine.toml"]) == 0
    assert load(tmp_path / "mine.toml") == Recipe(name="stdlib")
    text = (tmp_path / "mine.toml").read_text()
    for table in ("source", "files", "prompt", "later", "size"):
        for field in msgspec.structs.fields(type(getattr(Recipe(name="x"), table))):
            assert f"\n{field.name} = " in text or f"\n# {field.name} = " in text
    capsys.readouterr()
    assert main(["corpus", "init", "-o", "mine.toml"]) == 2
    assert "exists" in capsys.readouterr().err


def test_init_over_a_repository_builds(tmp_path, repository, capsys):
    assert main(["corpus", "init", str(repository), "-o", "-"]) == 0
    recipe = tmp_path / "mine.toml"
    recipe.write_text(capsys.readouterr().out)
    assert load(recipe).source.url == str(repository)
    assert main(["corpus", "build", str(recipe), "-n", "1", "--tokens", "500"]) == 0


def test_shipped_schema_is_the_types(capsys):
    assert main(["corpus", "init", "--schema"]) == 0
    assert capsys.readouterr().out == (paths.data_dir("corpora") / "recipe.schema.json").read_text()
    assert json.loads(starter.schema())["$defs"]["Prompt"]["properties"]["layout"]["enum"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes(name):
    recipe = resolve(name)
    assert recipe.name == name
    assert recipe.description
    readme = (paths.data_dir("corpora") / "README.md").read_text()
    assert f"| `{name}` | {recipe.size.contexts} x {recipe.size.tokens:,} |" in readme
    assert "#:schema recipe.schema.json" in (paths.data_dir("corpora") / f"{name}.toml").read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_build(name, capsys):
    """From the standard library, with fewer and where possible smaller contexts than they say."""
    recipe = resolve(name)
    wanted = min(
        recipe.size.tokens,
        max(recipe.prompt.shared_tokens + 9000, 12_000) if "benchmark" not in name else 12_000,
    )
    assert main(["corpus", "build", name, "-n", "3", "--tokens", str(wanted), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == wanted


def test_cache_command(repository, capsys):
    assert main(["corpus", "build", str(repository), "-n", "1", "--tokens", "100"]) == 0
    capsys.readouterr()
    assert main(["corpus", "cache"]) == 0
    assert "1 x 100 tekken tokens of " in capsys.readouterr().out
    assert main(["corpus", "cache", "--json"]) == 0
    assert [entry["kind"] for entry in json.loads(capsys.readouterr().out)] == ["contexts"]
    assert main(["corpus", "cache", "--clear", "--kind", "contexts"]) == 0
    assert "removed" in capsys.readouterr().out
    assert main(["corpus", "cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_agent_that_ships_is_sound():
    folder = paths.data_dir("corpora") / "agent"
    tools = json.loads((folder / "tools.json").read_text())
    names = [tool["function"]["name"] for tool in tools]
    assert len(set(names)) == len(names)
    for tool in tools:
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])
    assert {"read_file", "list_files"} <= set(names)


def test_toml_of_strange_paths():
    for url in ('/tmp/a "b"', "/tmp/ü\\x", "/tmp/\u2028"):
        assert tomllib.loads(starter.template(url, "x"))["source"]["url"] == url


def test_check_counts_as_a_whole(tmp_path, repository, capsys):
    out = tmp_path / "out"
    assert main(["corpus", "build", str(repository), "-n", "3", "--tokens", "900", "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["corpus", "check", str(out)]) == 0
    assert "3 contexts are as recorded" in capsys.readouterr().out
    assert main(["corpus", "check", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == [900] * 3
    assert found["matrix"][0][1] < 16 < found["matrix"][0][0]

    text = out / "context-0001.txt"
    content = text.read_bytes()
    text.chmod(0o644)
    text.write_bytes(content[:-1] + b"!")
    assert main(["corpus", "check", str(out)]) == 2
    assert "SHA-256 differs" in capsys.readouterr().err


def test_check_finds_a_wrong_count(tmp_path, repository, capsys):
    out = tmp_path / "out"
    assert main(["corpus", "build", str(repository), "-n", "1", "--tokens", "900", "-o", str(out)]) == 0
    manifest = out / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(
        manifest.read_text().replace('"tokens": 900,\n   "sha256"', '"tokens": 901,\n   "sha256"')
    )
    assert main(["corpus", "check", str(out)]) == 2
    assert "has 900 tokens and not 901 as recorded" in capsys.readouterr().err


def test_check_at_an_endpoint(tmp_path, repository, capsys):
    out = tmp_path / "out"
    with served.endpoint() as url:
        build = [
            "corpus",
            "build",
            str(repository),
            "-n",
            "2",
            "--tokens",
            "5000",
            "-o",
            str(out),
            "--host",
            url,
        ]
        assert main([*build, "--form", "messages"]) == 0
        assert "exactly 5,000 prompt tokens" in capsys.readouterr().out
        assert main(["corpus", "check", str(out), "--host", url]) == 0
        assert "5,000 each" in capsys.readouterr().out
    with served.endpoint(encode=lambda text: list(text.encode())) as url:
        assert main(["corpus", "check", str(out), "--host", url]) == 2
        assert "counts" in capsys.readouterr().err


def test_check_with_another_tokenizer(tmp_path, repository, capsys):
    from loadgen.tokens.tekken import shipped_file

    out = tmp_path / "out"
    assert main(["corpus", "build", str(repository), "-n", "1", "--tokens", "900", "-o", str(out)]) == 0
    assert main(["corpus", "check", str(out), "--tokenizer", f"tekken:{shipped_file()}"]) == 0
    other = tmp_path / "tekken.json"
    other.write_text(
        shipped_file().read_text().replace('"default_vocab_size": 131072', '"default_vocab_size": 130072')
    )
    capsys.readouterr()
    assert main(["corpus", "check", str(out), "--tokenizer", f"tekken:{other}"]) == 2
    assert "counts otherwise" in capsys.readouterr().err
