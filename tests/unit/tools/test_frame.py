from __future__ import annotations

import subprocess
import sys
import time

import click
import pytest

from tests.support.command_line import completions, flags_of, parsed
from tidelog.tools.cli.frame import KeyValue, one_of
from tidelog.tools.cli.main import ALIASES, SECTIONS, main, root


def test_zero_counts_as_given() -> None:
    assert one_of({"--to-offset": 0, "--to-latest": False, "--topic": ()}) == "--to-offset"


@pytest.mark.parametrize("given", [{"-a": 1, "-b": "x"}, {"-a": None, "-b": False}])
def test_two_flags_or_none_are_wrong_usage(given: dict[str, object]) -> None:
    with pytest.raises(click.UsageError):
        one_of(given)


def test_a_value_may_hold_an_equals_sign_and_may_be_empty() -> None:
    assert KeyValue().convert("a=b=c", None, None) == ("a", "b=c")
    assert KeyValue().convert("a=", None, None) == ("a", "")


@pytest.mark.parametrize("name", [*root().rows, *ALIASES])
def test_every_command_has_help_that_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: tidelog {name} ")
    assert max(map(len, printed.splitlines())) <= 80


def test_every_change_can_be_tried_out() -> None:
    """Verbs that change something in a cluster, and those that only look."""
    looks = {
        "list", "describe", "offsets", "show", "get", "info", "health", "brokers", "log-dirs",
        "features", "describe-producers", "find-hanging", "plan", "verify", "consume", "latency_",
        "validate", "explain", "diff", "client-metrics",
    }  # fmt: skip
    # They make files of their own; `plan` is the dry run of `run`.
    of_pipelines = {"init", "test", "plan", "run", "status", "package", "export"}
    context = click.Context(root(), info_name="tidelog")
    without = []
    groups = "topic group user token config acl context txn reassign perf pipeline cluster"
    for name in groups.split():
        group = root().get_command(context, name)
        assert isinstance(group, click.Group)
        if name == "pipeline":
            looks |= of_pipelines
        for verb in group.list_commands(context):
            command = group.get_command(context, verb)
            assert command is not None
            flags = {flag for option in command.params for flag in option.opts}
            if verb not in looks and "--dry-run" not in flags:
                without.append(f"{name} {verb}")
    without += [name for name in ("produce", "elect") if "--dry-run" not in flags_of(name)]
    assert without == []


def test_an_unknown_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["toppic"])
    assert ended.value.code == 2
    assert "did you mean topic?" in capsys.readouterr().err


def test_help_imports_no_command() -> None:
    script = (
        "import sys\n"
        "from tidelog.tools.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('tidelog.client')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_there_at_once() -> None:
    """150 ms on a quiet machine; processor time says how quiet it is. The best of five."""
    best_s = 10.0
    for _ in range(5):
        began_s = time.process_time()
        code = "import resource, sys\n" + (
            "from tidelog.tools.cli.main import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "used = resource.getrusage(resource.RUSAGE_SELF)\n"
            "print(used.ru_utime + used.ru_stime, file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        best_s = min(best_s, float(done.stderr))
        assert time.process_time() >= began_s
    assert best_s < 0.15


def test_python_minus_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "tidelog 0.1.0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_TIDELOG_COMPLETE" in capsys.readouterr().out


def test_commands_verbs_and_options_are_completed() -> None:
    assert completions("tidelog", "con") == ["consume", "config", "console", "context"]
    assert completions("tidelog topic", "de") == ["describe", "delete"]
    assert "--if-not-exists" in completions("tidelog topic create", "--if")


def test_a_cluster_that_is_not_there_completes_to_nothing() -> None:
    began_s = time.monotonic()
    assert completions("tidelog -b 127.0.0.1:1 topic describe", "x") == []
    assert time.monotonic() - began_s < 30


def test_sections_name_every_command_once() -> None:
    names = [name for rows in SECTIONS.values() for name in rows]
    assert len(names) == len(set(names))
    assert set(ALIASES.values()) <= set(names)
    assert parsed(["groups", "list"]).command_path == "tidelog groups list"
