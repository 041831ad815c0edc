from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import envs.__main__ as cli
from envs.clawgym import ClawGymEnv
from envs.mixed import MixedEnv
from sandboxes import probe
from tests.envs.fakes import FakeSandboxes, task
from tests.envs.questions import question
from tests.shared_data import REPOSITORY


def typed(*lines: str) -> Callable[[str], str]:
    """Reads these lines, then the end of the input."""
    rest: Iterator[str] = iter(lines)

    def read(prompt: str) -> str:
        for line in rest:
            print(f"{prompt}{line}")
            return line
        raise EOFError

    return read


def play(*lines: str) -> int:
    env = ClawGymEnv([task()])
    try:
        return cli.play(env, seed=0, read=typed(*lines))
    finally:
        env.close()


def test_a_person_plays_and_sees_the_assertions(sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("ls", "", "echo hello > greeting.txt", "TASK_COMPLETE") == 0
    shown = capsys.readouterr().out
    assert "task first (4 turns, seed 0)" in shown and "exit code: 0\nstdout:\nnotes.txt" in shown
    assert "pass  file_exists:greeting.txt" in shown and "passed: rate 1.000, reward 0.850 after 3 turns" in shown


def test_what_is_missing_is_said(sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("TASK_COMPLETE") == 1
    shown = capsys.readouterr().out
    assert "fail  file_exists:greeting.txt: " in shown and "not passed: rate 0.500" in shown


def test_the_end_of_the_input_submits(sandboxes: FakeSandboxes) -> None:
    assert play("echo hello > greeting.txt") == 0


def test_several_lines_are_one_command(sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("cat > greeting.txt <<'EOF'", "it's", "", "```", "hello", "```", "EOF", "cat \\", "  greeting.txt") == 0
    assert "stdout:\nit's\n\n```\nhello\n```" in capsys.readouterr().out


def test_the_budget_ends_the_game(sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("true", "true", "true", "true", "never read") == 1
    assert "stopped: max_turns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ls"], False),
        (["echo 'a"], True),
        (["echo 'a", "b'"], False),
        (['echo "a\\""'], False),
        (['echo "a\\"'], True),
        (["ls # don't"], False),
        (["echo don\\'t"], False),
        (["ls \\"], True),
        (["cat <<EOF"], True),
        (["cat <<EOF", "it's"], True),
        (["cat <<EOF", "it's", "EOF"], False),
        (["cat <<-A <<B", "\tA"], True),
        (["cat <<-A <<B", "\tA", "B"], False),
        (["echo '<<EOF'"], True),
    ],
)
def test_incomplete(lines: list[str], expected: bool) -> None:
    assert cli.incomplete(lines) is expected


def test_mistakes_in_the_call_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main([])
    assert refused.value.code == 2
    assert cli.main(["play", "--tasks", "no/such/place"]) == 2
    assert "no tasks at 'no/such/place'" in capsys.readouterr().err
    assert cli.main(["play", "--task", "archive-old-lgos"]) == 2
    assert "did you mean 'archive-old-logs'" in capsys.readouterr().err
    assert cli.main(["play", "--tasks", "library:vat-rates,library:dialogues"]) == 2
    assert "task 'count-and-tell' has a user, who answers in ClawGym-v1 alone" in capsys.readouterr().err
    assert cli.main(["play", "--sandbox", "bubblewarp"]) == 2
    assert "bubblewrap" in capsys.readouterr().err


def test_the_command_line_plays_a_piped_game() -> None:
    if not (probe("bubblewrap").ok or probe("landlock").ok):
        pytest.skip("no safe sandbox works here")
    done = subprocess.run(
        [sys.executable, "-m", "envs", "play", "--task", "start-project", "--max-turns", "3"],
        input="ls\n",
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "main.py" in done.stdout and "stopped: submitted" in done.stdout and "not passed" in done.stdout


def test_questions_are_answered_behind_an_equals_sign(
    sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]
) -> None:
    env = MixedEnv([question()])
    assert cli.play(env, seed=0, read=typed("echo $((12 * 6))", "= it's 72")) == 0
    shown = capsys.readouterr().out
    assert cli.ANSWERING in shown and "stdout:\n72" in shown and "pass  number_equals" in shown
    assert cli.play(env, seed=0, read=typed("= <<END", "It's", "", "#### 71", "END")) == 1
    assert cli.play(env, seed=0, read=typed("= <<END", "It's", "", "#### 72", "END")) == 0
    assert cli.play(env, seed=0, read=typed()) == 1  # the end of the input submits nothing
    env.close()
