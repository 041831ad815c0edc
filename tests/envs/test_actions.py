from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.actions import Command, Malformed, MalformedKind, Submit, parse, without_stop_word
from tests.shared_data import shared


def command(reply: str) -> str:
    action = parse(reply)
    assert isinstance(action, Command), action
    return action.text


def kind(reply: str) -> MalformedKind:
    action = parse(reply)
    assert isinstance(action, Malformed), action
    assert action.reason and "\n" not in action.reason
    return action.kind


@pytest.mark.parametrize("tag", ["bash", "sh", "shell", "", "Bash", "SH", " bash"])
@pytest.mark.parametrize("fence", ["```", "~~~", "````", "~~~~~"])
def test_every_fence_alias_gives_the_command(tag: str, fence: str) -> None:
    assert command(f"I look around.\n{fence}{tag}\nls -la\n{fence}\nThen we see.") == "ls -la"


def test_many_lines_reach_the_shell_whole() -> None:
    text = "# first\nmkdir -p a\n\nfor x in 1 2; do\n  echo $x\ndone"
    assert command(f"```bash\n{text}\n```") == text


def test_heredoc_reaches_the_shell_whole() -> None:
    text = "cat > a.txt <<'EOF'\nline\n\n# no comment\nTASK_COMPLETE\nEOF"
    assert parse(f"```bash\n{text}\n```") == Command(text, False, f"```bash\n{text}\n```")


@pytest.mark.parametrize(
    "text",
    [
        "cat > README.md <<'EOF'\n# Use\n```bash\nmake\n```\nEOF\nls",
        "cat > README.md <<EOF\n```\nmake\n```\n\n~~~\nmore\n~~~\nEOF",
        'cat >> README.md << "END OF FILE"\n```\nmake\n```\nEND OF FILE',
        "cat <<-\\EOF > a\n\t```python\n\tprint(1)\n\t```\n\tEOF\necho done",
        "cat <<A > a; cat <<B > b\n```\nin a\n```\nA\n```\nin b\n```\nB",
        "cat > start.md <<'EOF'\n```bash\nEOF",
    ],
    ids=["nested tag", "several", "quoted words", "tabs", "two heredocs", "one fence only"],
)
def test_fences_inside_a_heredoc_do_not_end_the_block(text: str) -> None:
    assert command(f"Writing it.\n```bash\n{text}\n```\nDone so far.") == text


def test_a_longer_fence_shields_any_text() -> None:
    text = "printf '%s\\n' '\n```\na\n```\n```\n' > a.md"
    assert command(f"````bash\n{text}\n````") == text
    assert command(f"~~~bash\n{text}\n~~~") == text


def test_a_forgotten_end_word_does_not_swallow_the_next_block() -> None:
    first = "```bash\ncat > a <<EOF\nhi\n```"
    for tag in ("bash", ""):
        second = f"```{tag}\ncat > b <<EOF\nho\nEOF\n```"
        assert kind(f"{first}\nand then\n{second}") is MalformedKind.SEVERAL_BLOCKS


def test_an_unterminated_heredoc_goes_to_the_shell_as_it_is() -> None:
    assert command("```bash\ncat <<EOF\nhi\n```") == "cat <<EOF\nhi"


def test_a_heredoc_whose_end_stands_behind_the_closing_fence_is_not_run() -> None:
    assert kind("```bash\ncat > a <<EOF\nhi\n```\nEOF") is MalformedKind.UNCLOSED_FENCE


def test_an_indented_block_loses_its_indent() -> None:
    assert command("1. so:\n\n   ```bash\n   cat <<EOF\n     x\n   EOF\n   ```") == "cat <<EOF\n  x\nEOF"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("", MalformedKind.EMPTY),
        (" \n\t\n", MalformedKind.EMPTY),
        ("<think>only thought</think>\n", MalformedKind.EMPTY),
        ("ls -la", MalformedKind.NO_ACTION),
        ("I think TASK_COMPLETE now", MalformedKind.NO_ACTION),
        ("TASK_COMPLETE.", MalformedKind.NO_ACTION),
        ("task_complete", MalformedKind.NO_ACTION),
        ("```bash\nls\n```\n```bash\nrm -rf a\n```", MalformedKind.SEVERAL_BLOCKS),
        ("```bash\nls\n```\n```\nrm -rf a\n```\nTASK_COMPLETE", MalformedKind.SEVERAL_BLOCKS),
        ("```bash\nls\n```\n~~~sh\nrm -rf a\n~~~", MalformedKind.SEVERAL_BLOCKS),
        ("```bash\nls\n```\n```rm -rf a```", MalformedKind.SEVERAL_BLOCKS),
        ("```bash\nls", MalformedKind.UNCLOSED_FENCE),
        ("```bash\nls```", MalformedKind.UNCLOSED_FENCE),
        ("```bash\nls\n```\n```text\nis this", MalformedKind.UNCLOSED_FENCE),
        ("````bash\nls\n```", MalformedKind.UNCLOSED_FENCE),
        ("```bash\nls\n~~~", MalformedKind.UNCLOSED_FENCE),
        ("```bash ls -la```", MalformedKind.ONE_LINE_FENCE),
        ("```ls```", MalformedKind.ONE_LINE_FENCE),
        ("```bash ls ~```", MalformedKind.ONE_LINE_FENCE),
        ("~~~sh ls~~~", MalformedKind.ONE_LINE_FENCE),
        ("```bash ls -la\n```", MalformedKind.ONE_LINE_FENCE),
        ("```bash cd a\nls\n```", MalformedKind.ONE_LINE_FENCE),
        ("```bash\n```", MalformedKind.EMPTY_BLOCK),
        ("```bash\n\n# nothing to do\n  # really\n```", MalformedKind.EMPTY_BLOCK),
        ("```bash\n# done\n```\nTASK_COMPLETE", MalformedKind.EMPTY_BLOCK),
        ("```bash\nTASK_COMPLETE\n```", MalformedKind.STOP_WORD_IN_BLOCK),
        ("```python\nprint(1)\n```", MalformedKind.OTHER_LANGUAGE),
        ("```zsh\nls\n```", MalformedKind.OTHER_LANGUAGE),
        ("<think>hm\n```bash\nls\n```", MalformedKind.UNCLOSED_THINK),
        ("```bash\nls\n```\n<think>and now", MalformedKind.UNCLOSED_THINK),
        ("a draft\n```bash\nls\n</think>\n```bash\npwd\n```", MalformedKind.UNCLOSED_THINK),
        ("```bash\necho \ud800\n```", MalformedKind.NOT_TEXT),
        ("```bash\necho a\0b\n```", MalformedKind.NOT_TEXT),
    ],
)
def test_malformed(reply: str, expected: MalformedKind) -> None:
    assert kind(reply) is expected


def test_thoughts_are_left_out() -> None:
    assert command("<think>first `ls`?\n```bash\nrm -rf .\n```\n</think>\n```bash\nls\n```") == "ls"
    assert command("<think>a</think> so <think>b\nc</think>\n```bash\nls\n```") == "ls"
    assert command("the prompt opened this\n```bash\nrm -rf .\n```\n</think>\n```bash\nls\n```") == "ls"
    assert parse("<think>\nTASK_COMPLETE\n</think>\n```bash\nls\n```") == Command("ls", False, "```bash\nls\n```")
    assert parse("<think>well</think>\nThe sum is 4.\nTASK_COMPLETE") == Submit("The sum is 4.\nTASK_COMPLETE")
    assert command("```bash\necho '<think>' '</think>'\n```") == "echo '<think>' '</think>'"


def test_the_stop_word_submits() -> None:
    assert parse("All good.\n  TASK_COMPLETE \n") == Submit("All good.\n  TASK_COMPLETE")
    assert parse("TASK_COMPLETE\r\n") == Submit("TASK_COMPLETE")
    assert parse("```text\nwhat it wrote\n```\nTASK_COMPLETE") == Submit("```text\nwhat it wrote\n```\nTASK_COMPLETE")


@pytest.mark.parametrize("reply", ["```bash\nls\n```\nTASK_COMPLETE", "TASK_COMPLETE\n```bash\nls\n```"])
def test_a_command_with_the_stop_word_runs_and_then_submits(reply: str) -> None:
    assert parse(reply) == Command("ls", True, reply)


def test_the_stop_word_inside_a_command_does_not_submit() -> None:
    assert parse("```bash\nls\nTASK_COMPLETE\n```") == Command(
        "ls\nTASK_COMPLETE", False, "```bash\nls\nTASK_COMPLETE\n```"
    )
    assert kind("```text\nTASK_COMPLETE\n```") is MalformedKind.OTHER_LANGUAGE


@pytest.mark.parametrize(
    "text",
    [
        'echo "Task complete."',
        "echo 'task completed'",
        "echo Task complete",
        "echo TASK COMPLETE.",
        "echo TASK_COMPLETE",
        '# all done\necho "Task complete."  # bye',
    ],
)
def test_prose_stop(text: str) -> None:
    reply = f"```bash\n{text}\n```"
    assert parse(reply) == Submit(reply)


@pytest.mark.parametrize(
    "text",
    [
        'echo "Task complete." > done.txt',
        'echo "Task complete." | tee log',
        'echo "Task complete." && ls',
        "echo task complete!",
        "echo \"Task complete.'",
        "ls\necho 'Task complete.'",
        "printf 'Task complete.'",
    ],
)
def test_more_than_prose_is_a_command(text: str) -> None:
    assert command(f"```bash\n{text}\n```") == text


def test_other_languages_beside_a_command_are_prose() -> None:
    assert command("I expect\n```text\nTASK_COMPLETE\n```\nfrom\n```bash\nls\n```") == "ls"


def test_line_ends_are_normalised() -> None:
    assert command("```bash\r\nls\r\npwd\r\n```\r\n") == "ls\npwd"


def test_only_line_feeds_end_lines() -> None:
    assert command("```bash\necho 'a\u2028b\x0cc'\n```") == "echo 'a\u2028b\x0cc'"


# Where this parser differs from the one whose labels the fixtures hold, and how.
DIFFERS = {
    "two_blocks_first_wins": MalformedKind.SEVERAL_BLOCKS,
    "multi_line_first_line_only": "whole",
    "leading_comment_skipped": "whole",
    "block_plus_token_done_wins_cmd_dropped": "then_submit",
    "token_line_inside_block_done": "command",
}


def _as_label(reply: str) -> str:
    action = parse(reply)
    return {Command: "shell", Submit: "done", Malformed: "parse_error"}[type(action)]


def test_reference_replies_are_read_the_same_or_as_documented() -> None:
    cases = [case for case in json.loads(shared("fixtures/credit.json").read_text())["cases"]]
    replies = {
        case["id"]: (case["inputs"]["text"], case["expected"])
        for case in cases
        if case["group"] == "clawgym.parse" and "text" in case["inputs"]
    }
    assert len(replies) >= 14
    for name, (reply, (expected, _)) in replies.items():
        action = parse(reply)
        if name == "parse_action_two_blocks":
            assert kind(reply) is MalformedKind.SEVERAL_BLOCKS
        elif name == "parse_action_sh_two_lines":
            assert command(reply) == "# c\nmkdir -p a\nls"
        elif name == "parse_action_done_beats_block":
            assert isinstance(action, Command) and action.then_submit and action.text == "ls"
        else:
            assert _as_label(reply) == (expected["kind"] if expected else "parse_error"), name
            if isinstance(action, Command):
                assert action.text == expected["cmd"], name


# The fixture names its cases and gives no text: these are the texts the names say.
NAMED = {
    "bash_block": "```bash\nls\n```",
    "untagged_block": "```\nls\n```",
    "zsh_tag": "```zsh\nls\n```",
    "python_tag": "```python\nls\n```",
    "two_blocks_first_wins": "```bash\nls\n```\n```bash\npwd\n```",
    "multi_line_first_line_only": "```bash\nls\npwd\n```",
    "leading_comment_skipped": "```bash\n# look\nls\n```",
    "only_comment": "```bash\n# look\n```",
    "empty_block": "```bash\n```",
    "unclosed_block": "```bash\nls",
    "inline_one_line_block": "```bash ls```",
    "literal_token_alone": "TASK_COMPLETE",
    "literal_token_with_period": "TASK_COMPLETE.",
    "token_mid_sentence": "so TASK_COMPLETE it is",
    "block_plus_token_done_wins_cmd_dropped": "```bash\nls\n```\nTASK_COMPLETE",
    "token_line_inside_block_done": "```bash\nls\nTASK_COMPLETE\n```",
    "echo_task_complete_quoted": '```bash\necho "Task complete."\n```',
    "echo_task_completed": "```bash\necho Task completed\n```",
    "echo_with_redirect_is_shell": '```bash\necho "Task complete." > f\n```',
    "echo_with_bang_is_shell": "```bash\necho task complete!\n```",
    "chain_not_rejected": "```bash\nls; pwd\n```",
    "empty": "",
    "whitespace": " \n ",
}


def test_named_reference_cases_are_read_the_same_or_as_documented() -> None:
    cases = json.loads(shared("fixtures/t2po_gigpo.json").read_text())["fn_parse_action"]
    assert {case["case"] for case in cases} == set(NAMED)
    for case in cases:
        name, reply = case["case"], NAMED[case["case"]]
        differs = DIFFERS.get(name)
        if isinstance(differs, MalformedKind):
            assert kind(reply) is differs
        elif differs == "whole":
            assert command(reply) == reply.removeprefix("```bash\n").removesuffix("\n```")
        elif differs == "then_submit":
            assert parse(reply) == Command("ls", True, reply)
        elif differs == "command":
            assert command(reply) == "ls\nTASK_COMPLETE"
        else:
            assert _as_label(reply) == case["kind"], name
            if case["kind"] == "shell":
                assert command(reply) == case["cmd"]


HOSTILE = {
    "heredocs without end": "```bash\n" + "cat <<A\n" * 60_000,
    "heredocs that shield nothing": "```bash\n"
    + "".join(f"cat <<A{i}\n" for i in range(20_000))
    + "```\n```x\n```\n```y\n"
    + "".join(f"A{i}\n" for i in range(20_000)),
    "heredocs that shield": "```bash\n" + "".join(f"cat <<A{i}\n```\nA{i}\n" for i in range(20_000)) + "```",
    "words indented deep": "```bash\n" + "cat <<A\n" * 100 + "    A\n" * 50_000 + "```",
    "thoughts on one line": "<think>a</think>" * 40_000,
    "thoughts that end only": "</think>" * 80_000,
    "thoughts that begin only": "<think>" * 80_000,
    "thoughts on many lines": "<think>\n</think>\n" * 40_000,
    "a line that opens": "```" + "a" * 500_000,
    "a line of tildes and spaces": "~~~ " + " " * 500_000 + "~",
    "ticks": "`" * 500_000,
    "spaced ticks": "``` " * 100_000,
    "fences": "```\n" * 100_000,
    "blank": " " * 500_000,
    "operators": "```bash\n" + "<<" * 200_000 + "\n```",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_long_reply_is_read_in_linear_time(name: str) -> None:
    # No time is asserted: a reading in quadratic time would run for many minutes and meet the limit of the test.
    assert isinstance(parse(HOSTILE[name]), Command | Malformed)


PIECES = ["```", "```bash", "````", "~~~", "ls", "cat <<EOF", "EOF", "TASK_COMPLETE", "<think>", "</think>", "", "# x"]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_no_reply_raises_and_no_command_holds_two_blocks(lines: list[str]) -> None:
    reply = "\n".join(lines)
    action = parse(reply)
    assert parse(reply) == action
    if isinstance(action, Command):
        # What runs was written, in one piece, between two fences.
        assert f"\n{action.text}\n" in reply


@given(st.text(max_size=200))
def test_any_text_is_read(reply: str) -> None:
    assert isinstance(parse(reply), Command | Submit | Malformed)


@given(st.text(alphabet=st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1, max_size=80))
def test_a_tilde_fence_carries_any_text_without_tildes(text: str) -> None:
    action = parse(f"~~~~~bash\n: x\n{text}\n~~~~~")
    if "~~~~~" not in text and "think>" not in text:
        assert action == Command(f": x\n{text}", False, f"~~~~~bash\n: x\n{text}\n~~~~~")


# -- A loose reading (ClawGym-v1) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["TASK_COMPLETE.", "**TASK_COMPLETE**", " **TASK_COMPLETE.** ", "**TASK_COMPLETE**."])
def test_a_loose_reading_knows_the_stop_word_in_bold_and_with_a_full_stop(word: str) -> None:
    assert parse(f"Done.\n{word}", loose=True) == Submit(f"Done.\n{word}".strip())
    assert parse(f"```bash\nls\n```\n{word}", loose=True) == Command("ls", True, f"```bash\nls\n```\n{word}".strip())
    assert kind(f"Done.\n{word}") is MalformedKind.NO_ACTION
    assert without_stop_word(f"Done.\n{word}") == "Done."


@pytest.mark.parametrize(
    "said",
    [
        "I write TASK_COMPLETE.",
        "*TASK_COMPLETE*",
        "**TASK_COMPLETE",
        "TASK_COMPLETE..",
        "`TASK_COMPLETE`",
        "**Task_complete**",
    ],
)
def test_what_only_names_the_stop_word_submits_in_no_reading(said: str) -> None:
    action = parse(said, loose=True)
    assert isinstance(action, Malformed) and action.kind is MalformedKind.NO_ACTION


LOOSE_BLOCKS = {
    "attributes": '```bash title="a.sh" {.numberLines} start=1\nls\n```',
    "comment": "```bash # list\nls\n```",
    "numbered": "10. Look:\n\n    ```bash\n    ls\n    ```",
    "nested": "- a\n  - b\n    - c\n      ```sh\n      ls\n      ```\nThen.",
    "closed-at-the-margin": "10. Look:\n    ```bash\n    ls\n```",
    "on-the-line-of-its-item": "- ```bash\n  ls\n  ```",
    "console": "```console\nls\n```",
}


@pytest.mark.parametrize("name", LOOSE_BLOCKS)
def test_a_loose_reading_takes_more_forms_of_a_block(name: str) -> None:
    reply = LOOSE_BLOCKS[name]
    assert parse(reply, loose=True) == Command("ls", False, reply)
    assert isinstance(parse(reply), Malformed)


def test_an_indented_block_is_one_where_another_stands_in_the_margin() -> None:
    both = "```bash\nls\n```\n1. or\n\n    ```bash\n    pwd\n    ```"
    loose, strict = parse(both, loose=True), parse(both)
    assert isinstance(loose, Malformed) and loose.kind is MalformedKind.SEVERAL_BLOCKS
    assert isinstance(strict, Command) and strict.text == "ls"


def test_heredocs_and_inner_fences_of_an_indented_block_stay_whole() -> None:
    text = "cat > a.md <<'EOF'\n```\ncode\n```\nEOF\nls"
    indented = "\n".join(f"     {line}" for line in f"```bash\n{text}\n```".split("\n"))
    action = parse(f"1. a\n   - b:\n{indented}", loose=True)
    assert isinstance(action, Command) and action.text == text


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("```console\n$ ls\na.txt\n```", MalformedKind.OTHER_LANGUAGE),
        ("```console\nme@box:~/a$ ls\n```", MalformedKind.OTHER_LANGUAGE),
        ("```console\n(venv) % ls\n```", MalformedKind.OTHER_LANGUAGE),
        ("```console\n# ls\na.txt\n```", MalformedKind.OTHER_LANGUAGE),
        ("```bash ls -la\npwd\n```", MalformedKind.ONE_LINE_FENCE),
        ("```bash X=1 ./run\nls\n```", MalformedKind.ONE_LINE_FENCE),
        ('```bash title="a"\n```', MalformedKind.EMPTY_BLOCK),
        ("No list.\n\n    ```bash\n    ls\n    ```", MalformedKind.NO_ACTION),
        ("- a\n\nNo item.\n    ```bash\n    ls\n    ```", MalformedKind.NO_ACTION),
        ("- a\n          ```bash\n          ls\n          ```", MalformedKind.NO_ACTION),
        ("1. a\n    ```bash\n    ls", MalformedKind.UNCLOSED_FENCE),
    ],
)  # fmt: skip
def test_a_loose_reading_guesses_nothing(reply: str, wanted: MalformedKind) -> None:
    action = parse(reply, loose=True)
    assert isinstance(action, Malformed) and action.kind is wanted


@given(st.text(alphabet="`~ -*1.\nlsbash<>EOF$TASK_COMPLETE", max_size=120))
def test_a_strict_command_is_never_read_as_another_command(reply: str) -> None:
    strict, loose = parse(reply), parse(reply, loose=True)
    if isinstance(strict, Command) and isinstance(loose, Command):
        assert strict.text == loose.text
