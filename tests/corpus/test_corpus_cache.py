import subprocess
import sys
from pathlib import Path

import pytest

from loadgen import tokens
from loadgen.corpus import cache
from loadgen.corpus.build import build_and_account
from loadgen.corpus.context import load_set
from loadgen.corpus.recipe import resolve
from loadgen.errors import InputError

TEKKEN = tokens.get("tekken")


def cached(path, out=None, **other):
    return build_and_account(
        resolve(str(path)), **({"n": 2, "tokens": 600} | other), out=out, tokenizer=TEKKEN, cached=True
    )


def test_built_once_and_found_again(repository, monkeypatch):
    first = cached(repository)
    assert first.folder.name.startswith(first.contexts.content_hash[:32])
    monkeypatch.setattr("loadgen.corpus.build._build_into", None)  # a second build would fail
    assert cached(repository) == first


def test_other_inputs_are_other_contexts(repository):
    base = cached(repository)
    recipe = resolve(str(repository), "v1")
    others = [
        cached(repository, n=3),
        cached(repository, tokens=601),
        build_and_account(recipe, n=2, tokens=600, out=None, tokenizer=TEKKEN, cached=True),
    ]
    assert len({built.folder for built in [base, *others]}) == 4


def test_a_changed_folder_is_built_again(tmp_path, folder):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = cached(copy)
    for path in copy.rglob("*.py"):
        path.write_text("# new\n" + path.read_text())
    assert cached(copy).contexts.content_hash != before.contexts.content_hash


@pytest.mark.parametrize("damage", ["text", "missing", "manifest"])
def test_damage_is_noticed_and_mended(repository, damage):
    first = cached(repository)
    text = first.folder / first.contexts.contexts[0].file
    content = text.read_bytes()
    if damage == "text":
        text.chmod(0o644)
        text.write_bytes(b"X" + content[1:])
    elif damage == "missing":
        text.unlink()
    else:
        (first.folder / "manifest.json").unlink()
    again = cached(repository)
    assert again == first
    assert (again.folder / text.name).read_bytes() == content


def test_handed_out_and_independent(tmp_path, repository):
    built = cached(repository, out=tmp_path / "out")
    assert built.folder == tmp_path / "out"
    assert cache.clear().freed > 0
    assert cache.entries() == []
    assert load_set(tmp_path / "out") == built.contexts
    assert (tmp_path / "out" / "context-0000.txt").read_text()


def test_listed(repository):
    cached(repository)
    cached(f"file://{repository}")
    found = {entry.kind: entry for entry in cache.entries()}
    assert found["repos"].what == f"file://{repository}"
    assert "2 x 600 tekken tokens of " in found["contexts"].what
    assert all(entry.bytes > 0 for entry in found.values())
    cache.clear(("repos",))
    assert {entry.kind for entry in cache.entries()} == {"contexts"}


def test_without_cache_or_folder(repository):
    with pytest.raises(InputError, match="name one with -o"):
        build_and_account(resolve(str(repository)), n=1, tokens=100, out=None, tokenizer=TEKKEN)


def test_builders_at_once_agree(tmp_path, repository):
    command = [
        sys.executable, "-m", "loadgen", "corpus", "build", str(repository), "-n", "4", "--tokens", "3000", "--json",
    ]  # fmt: skip
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) for _ in range(3)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(list((tmp_path / "cache" / "contexts").glob("[0-9a-f]*"))) == 1
    assert not list((tmp_path / "cache" / "contexts").glob(".building-*"))


def workload(folder):
    """What `loadgen run` leaves: a trace of contexts, linked beside it, and texts made ready to be sent."""
    from loadgen.replay.options import Options
    from loadgen.replay.workload import _trace_of

    return _trace_of(folder, Options(contexts=str(folder), turns=2), TEKKEN)


def test_traces_and_texts_of_runs_are_listed_and_cleared(repository, tmp_path):
    built = cached(repository)
    trace = workload(built.folder)
    fragment = tmp_path / "cache" / "fragments" / "ab.json"
    fragment.parent.mkdir()
    fragment.write_text("x" * 1000)
    (tmp_path / "cache" / "remote" / "run").mkdir(parents=True)
    found = {entry.kind: entry for entry in cache.entries()}
    assert found["workloads"].name == trace.parent.name
    assert found["workloads"].what == "trace of 2 contexts"
    assert (found["fragments"].bytes, found["fragments"].what) == (1000, "1 texts, ready to be sent")
    assert "remote" in found
    cache.clear()
    assert cache.entries() == []
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def on_disk(*folders):
    files = [path.stat() for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum({info.st_ino: info.st_size for info in files}.values())


@pytest.mark.parametrize("kinds", [("contexts",), ("workloads",), ("contexts", "workloads"), cache.KINDS])
def test_bytes_are_those_that_the_disk_gets_back(repository, tmp_path, kinds):
    built = cached(repository, out=tmp_path / "out")
    workload(tmp_path / "out")
    before = on_disk(tmp_path)
    assert cache.total() == on_disk(tmp_path / "cache")
    done = cache.clear(kinds)
    assert done.freed == before - on_disk(tmp_path)
    assert done.linked >= sum(context.bytes for context in built.contexts.contexts)


def test_a_file_under_two_names_counts_once(tmp_path):
    (tmp_path / "a").write_text("x" * 100)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert cache.size([tmp_path]) == 100


def test_the_command_says_what_stays_in_use(repository, tmp_path, capsys):
    from loadgen.cli import main

    cached(repository, out=tmp_path / "out")
    assert main(["corpus", "cache", "--clear"]) == 0
    assert "more are in use elsewhere under a second name" in capsys.readouterr().out
    assert main(["corpus", "cache", "--clear", "--json"]) == 0
    assert capsys.readouterr().out == '{"freed_bytes": 0, "still_linked_bytes": 0}\n'
