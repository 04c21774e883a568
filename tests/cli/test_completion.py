"""`hanzo-pubsub completion` prints scripts that complete every command, with its options."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.main import COMMANDS, SERVER_COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path

COMPLETE = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p hanzo-pubsub | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_bash_completes_commands_options_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == Exit.OK
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out, encoding="utf-8")

    def complete(words: str) -> list[str]:
        command = COMPLETE.format(script=script, words=f"hanzo-pubsub {words}")
        done = subprocess.run(
            ["bash", "--norc", "-c", command], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert complete("pub") == ["publish"]
    assert complete("publish --da") == ["--data"]
    assert complete("token --kind ''") == ["user", "service", "admin", "agent"]
    assert "--http-port" in complete("serve --http")
    assert complete("generate --pyth") == ["--python"]
    assert set(complete("''")) == {*COMMANDS, *SERVER_COMMANDS}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh", "powershell"])
def test_the_script_of_each_shell_contains_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == Exit.OK
    printed = capsys.readouterr().out
    assert all(command in printed for command in (*COMMANDS, *SERVER_COMMANDS))


def test_completion_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == Exit.USAGE
    assert "pip install 'hanzoai.pubsub[cli]'" in capsys.readouterr().err


def test_an_unknown_shell_is_an_error_that_lists_the_shells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "ksh"]) == Exit.USAGE
    assert "'zsh'" in capsys.readouterr().err
