"""The command line as a whole: what it says of itself, what it imports, completion."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen import __version__
from loadgen.cli import COMMANDS, build_parser, main
from loadgen.cli.completion import SHELLS


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert "usage:" in capsys.readouterr().out


def test_the_version_shows_the_commit_of_a_checkout() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "loadgen", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(f"loadgen {__version__}")
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and shutil.which("git"):
        head = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"\(([0-9a-f]{12})\+?\)", shown)
        assert found is not None
        assert head.startswith(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize("command", ["corpus", "demo", "run"])
def test_commands_that_build_contexts_can_fork_when_they_have_numpy(command: str) -> None:
    script = f"""
import os
from loadgen.cli import main
from loadgen.corpus.forked import may_fork
try:
    main(["{command}", "--help"])
except SystemExit:
    import numpy
    print(may_fork())
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert shown.endswith("True\n"), shown[-200:]


def test_commands_that_start_servers_leave_their_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with pytest.raises(SystemExit):
        main(["experiment", "--help"])
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_windows_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["demo"]) == 2
    said = capsys.readouterr().err
    assert "Windows is not supported" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["gate", "--help"], ["sim", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    """Start-up time itself is in benchmarks/startup.py; what makes it slow is imports."""
    script = (
        "import sys\nfrom loadgen.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'locust', 'gevent', 'aiohttp', 'openai', 'rich', 'git', 'tiktoken', 'shtab'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_a_script_of_that_shell_with_every_command(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command in script
    if shutil.which(shell):
        file = tmp_path / "script"
        file.write_text(script)
        subprocess.run([shell, "-n", str(file)], check=True)


def test_bash_completes_commands_and_their_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["completion", "bash"])
    file = tmp_path / "completion.bash"
    file.write_text(capsys.readouterr().out)
    words = 'COMP_WORDS=(loadgen run --sched); COMP_CWORD=2; $(complete -p loadgen | sed "s/.*-F \\([^ ]*\\).*/\\1/") ; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"source {file}; {words}"], capture_output=True, text=True, check=False
    )
    assert "--schedule" in done.stdout, done.stderr


def test_every_option_says_what_it_does() -> None:
    def silent(parser: argparse.ArgumentParser, path: str) -> list[str]:
        found = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, child in action.choices.items():
                    found += silent(child, f"{path} {name}")
            elif not action.help:
                found.append(f"{path} {action.dest}")
        return found

    assert silent(build_parser(COMMANDS), "loadgen") == []
