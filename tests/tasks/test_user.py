# ruff: noqa: E501 (one case a line)
"""A task's user: what a file may say of one, when each rule speaks, and what a proof finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox import FileEntry, Snapshot
from tasks.assertions.base import Outcome, Verdict
from tasks.assertions.on_files import REGEX_SECONDS
from tasks.comparable import similarity
from tasks.grading import grade_folder
from tasks.model import TaskError
from tasks.proof import Proof, Status, play, prove
from tasks.show import describe
from tasks.task import Task
from tasks.user import Asked, Dialogue, Heard, Said, User
from tasks.yaml import dump_task, parse_task
from tests.shared_data import REPOSITORY
from tests.tasks.fake_sandbox import FakeSandbox

WELL = """\
schema_version: 2
id: demo
intent: write the budget into b
workspace: {files: {old.csv: x}}
budget: {max_turns: 8}
user:
  rules:
    - name: budget
      when: {says: budget, file: old.csv}
      say: It is 400.
      again: true
    - name: more
      when: {turn: 3, no_file: new.csv}
      say: Delete old.csv, too.
      request: true
  otherwise: I do not know.
assertions:
  - {kind: file_equals, path: b, equals: "400\\n"}
  - {kind: file_not_exists, path: old.csv}
  - {kind: heard, rule: budget}
oracle:
  commands:
    - {say: "What is the budget?", reads: {money: '(\\d+)'}}
    - echo {{money}} > b
    - cat b
    - {run: rm old.csv, request: more}
"""
BOOLEAN, NUMBER, DATE = "YAML as a boolean", "YAML as a number", "YAML as a date"
MAPPING, A_LIST, NOTHING, NO_ID = "YAML as a mapping", "but is a list", "has no value", "is no id: use lower case"
IS_FLAG = "must be a valid boolean"
RULE = "{when: {turn: 1}, say: x}"
WRONG: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "6: user": (WELL[WELL.index("user:") : WELL.index("assertions:")], "user: @\n", [
        ("yes", "mapping of keys to values"), ("tom", "has the text"), ("3", "has a number"), ("[]", "has a list"),
        ("{}", ".rules: is missing"), ("{rules: []}", ".rules: is empty"), ("{rules: x}", "needs a list"),
        (f"{{rule: [{RULE}]}}", "did you mean 'rules'?"), ("{rules: [x]}", ".rules[0]: needs a mapping"),
        (f"{{rules: [{RULE}], greeting: hi}}", "valid: rules, otherwise"), ("{rules: null}", NOTHING)]),
    "16: user.otherwise": ("otherwise: I do not know.", "otherwise: @", [
        ("", NOTHING), ("no", BOOLEAN), ("7", NUMBER), ("1.5", NUMBER), ("2024-01-01", DATE), ("[]", A_LIST),
        ("{}", MAPPING), ("''", "is blank: write what"), (f"'{'x' * 4001}'", "has 4001 characters"), ("{say: x}", MAPPING), ("yes", 'quotes: "yes"')]),
    "12: user.rules[1].name": ("name: more", "name: @", [
        ("yes", BOOLEAN), ("3", NUMBER), ("''", NO_ID), ("'a b'", NO_ID), ("More", NO_ID), ("-x", NO_ID), ("2024-01-01", DATE),
        ("[]", A_LIST), ("{}", MAPPING), ("budget", "two rules are named 'budget' (rule 1, too): rename one"), (f"'{'x' * 61}'", "at most 60 characters")]),
    "13: user.rules[1].when": ("when: {turn: 3, no_file: new.csv}", "when: @", [
        ("", NOTHING), ("yes", "has a boolean"), ("3", "has a number"), ("always", "has the text"), ("[turn]", "has a list"),
        ("{}", "give one of says, turn, file, no_file"), ("{turns: 3}", "did you mean 'turn'?"), ("{say: x}", "did you mean 'says'?"),
        ("{turn: 3, on: x}", "put it in quotes"), ("{file: a, no_file: ./a}", ".no_file: file and no_file name the same path"), ("{asks: x}", "valid: says, turn")]),
    "9: user.rules[0].when.says": ("says: budget", "says: @", [
        ("yes", BOOLEAN), ("3", NUMBER), ("1.5", NUMBER), ("2024-01-01", DATE), ("''", "is empty"), ("[]", A_LIST), ("{}", MAPPING),
        ("'('", "no regular expression: missing )"), ("'[a'", "unterminated character set"), ("'*'", "nothing to repeat"), ("'(?P<x'", "missing >")]),
    "13: user.rules[1].when.turn": ("turn: 3", "turn: @", [
        ("yes", "valid integer"), ("0", "or equal to 1"), ("-1", "or equal to 1"), ("1.5", "valid integer"), ("'3'", "valid integer"),
        ("1001", "or equal to 1000"), ("8", "the agent has 8 turns (budget.max_turns), so give a lower one"), ("[3]", A_LIST), ("{}", "a mapping"), ("three", "valid integer")]),
    "9: user.rules[0].when.file": ("file: old.csv}", "file: @}", [
        ("yes", BOOLEAN), ("3", NUMBER), ("''", "a path is empty"), ("/etc/x", "write it relative"), ("../x", "leaves the workspace"),
        ("~/x", "home folder"), ("'.'", "the workspace itself"), ("[]", A_LIST), ("{}", MAPPING), ("'a/../b'", "leaves the workspace")]),
    "13: user.rules[1].when.no_file": ("no_file: new.csv", "no_file: @", [
        ("no", BOOLEAN), ("3", NUMBER), ("''", "a path is empty"), ("/etc/x", "write it relative"), ("../x", "leaves the workspace"),
        ("'./'", "the workspace itself"), ("[a]", A_LIST), ("{a: b}", MAPPING), ('"a\\tb"', "control character"), ("'~'", "home folder")]),
    "10: user.rules[0].say": ("say: It is 400.", "say: @", [
        ("", NOTHING), ("yes", BOOLEAN), ("3", NUMBER), ("''", "is blank: write what"), ("' '", "is blank"), ("[]", A_LIST), ("{}", MAPPING),
        ("2024-01-01", DATE), ("{a: b}", MAPPING), ("[a, b]", A_LIST)]),
    "15: user.rules[1].request": ("request: true", "request: @", [
        ("", NOTHING), ("3", IS_FLAG), ("0", IS_FLAG), ("'true'", IS_FLAG), ("more", IS_FLAG), ("[]", IS_FLAG), ("{}", IS_FLAG), ("1.5", IS_FLAG),
        ("'yes'", IS_FLAG), ("2024-01-01", IS_FLAG)]),
    "11: user.rules[0].again": ("again: true", "again: @", [
        ("", NOTHING), ("3", IS_FLAG), ("1", IS_FLAG), ("'true'", IS_FLAG), ("always", IS_FLAG), ("[]", IS_FLAG), ("{}", IS_FLAG), ("2.0", IS_FLAG),
        ("'no'", IS_FLAG), ("2024-01-01", IS_FLAG)]),
    "20: assertions[2].rule": ("rule: budget", "rule: @", [
        ("", NOTHING), ("yes", BOOLEAN), ("3", NUMBER), ("''", NO_ID), ("'a b'", NO_ID), ("Budget", NO_ID), ("[]", A_LIST), ("{}", MAPPING),
        ("bugdet", "unknown rule of the user 'bugdet': did you mean 'budget'?"), ("2024-01-01", DATE)]),
    "23: oracle.commands[0]": ('say: "What is the budget?"', "say: @", [
        ("", ".say: has no value"), ("yes", BOOLEAN), ("3", NUMBER), ("''", ".say: is empty"), ("' '", "is blank"), ("[]", A_LIST), ("{}", MAPPING),
        ('"a\\0b"', "NUL"), ('"```bash\\nls\\n```"', "holds a block, and a reply with a block is a command: write it as `run`"), ('"What of {{x}}?"', "no command before reads 'x'")]),
    "26: oracle.commands[3].request": ("request: more}", "request: @}", [
        ("yes", BOOLEAN), ("3", NUMBER), ("''", "unknown request ''"), ("mor", "did you mean 'more'?"), ("budget", "unknown request 'budget': (valid: more)"),
        ("[]", A_LIST), ("{}", MAPPING), ("1.5", NUMBER), ("2024-01-01", DATE), ("[more]", A_LIST)]),
}  # fmt: skip
"""By line and key: what stands there, the form of what is put there, and each wrong value with a part of the complaint."""


def complaints(text: str) -> str:
    with pytest.raises(TaskError) as caught:
        parse_task(text, "my.yaml")
    return str(caught.value)


@pytest.mark.parametrize("place", WRONG)
def test_each_mistake_is_told_with_its_line_its_key_and_what_to_do(place: str) -> None:
    parse_task(WELL)
    old, form, values = WRONG[place]
    assert WELL.count(old) == 1 and len(values) >= 10
    for value, part in values:
        said = complaints(WELL.replace(old, form.replace("@", value)))
        assert any(line.startswith(f"my.yaml:{place}") and part in line for line in said.split("\n")), (value, said)


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("{when: {turn: 2}, say: x, request: true}", "16: user.rules[2].request: a request needs a name"),
        ("{name: n, when: {says: x}, say: x, request: true}", "16: user.rules[2].request: a request must reach whoever does not ask: leave `says` out"),
        ("{when: {turn: 2}, say: x, again: true}", "16: user.rules[2].again: only an answer is given again"),
        ("{name: n, when: {turn: 1}, say: x, request: true}", "oracle.commands: no step is for the request 'n': write one as {run: ..., request: n}"),
        ("{say: x}", "16: user.rules[2].when: is missing"),
        ("{when: {turn: 1}}", "16: user.rules[2].say: is missing"),
        ("{when: {turn: 1}, says: x}", "unknown key 'says': did you mean 'say'?"),
    ],
)  # fmt: skip
def test_a_rule_whose_keys_do_not_go_together(rule: str, part: str) -> None:
    assert part in complaints(WELL.replace("request: true\n", f"request: true\n    - {rule}\n"))


def test_without_version_2_or_without_a_user_the_new_words_are_refused() -> None:
    said = complaints(WELL.replace("schema_version: 2\n", ""))
    for key in ("5: user", "22: oracle.commands[0].say", "25: oracle.commands[3].request"):
        assert f"my.yaml:{key}: unknown key '{key.rpartition('.')[2].split(' ')[-1]}' in version 1" in said, said
    said = complaints(WELL.replace(WRONG["6: user"][0], ""))
    assert "assertions[2].rule: needs a user with a rule of this name" in said
    assert "oracle.commands[0].say: nobody is there to hear it" in said
    assert "oracle.commands[3].request: needs a user who asks for it" in said


def test_a_task_with_a_user_is_written_shown_and_told_from_its_twin() -> None:
    task = parse_task(WELL)
    again = parse_task(dump_task(task))
    assert again == task and again.content_hash == task.content_hash
    other = parse_task(WELL.replace("It is 400.", "It is 500."))
    assert other.problem_hash != task.problem_hash and other.meaning_hash != task.meaning_hash
    assert 0.65 < similarity(task, other) < 1
    shown = describe(task)
    for line in (
        "budget (again): when says budget, file old.csv: It is 400.",
        "more (request): when turn 3",
        "1> What is",
        "for the request more",
    ):
        assert line in shown


# -- When each rule speaks ---------------------------------------------------------------------------------------------


def user(*rules: dict[str, Any], **more: Any) -> User:
    return User.model_validate({"rules": rules, **more})


def said(
    dialogue: Dialogue, turn: int, message: str | None = None, files: str = "", submits: bool = False
) -> list[str]:
    there = {path: FileEntry() for path in files.split()}
    return [item.text for item in dialogue.after(turn, there, message, submits=submits)]


BUDGET = {"name": "budget", "when": {"says": "(?i)budget"}, "say": "400."}


def test_the_first_rule_that_applies_answers_once_and_with_again_every_time() -> None:
    talk = Dialogue(
        user(BUDGET, {"when": {"says": "budget|time"}, "say": "By May.", "again": True}, otherwise="No idea.")
    )
    assert [said(talk, turn, text) for turn, text in enumerate(["The budget?", "budget", "time", "Colour?"], 1)] == [
        ["400."], ["By May."], ["By May."], ["No idea."],
    ]  # fmt: skip
    assert talk.heard == {"budget"}
    assert [item.record() for item in talk.said][-1] == {"turn": 4, "text": "No idea.", "rule": None}


def test_rules_without_says_speak_by_themselves_each_once() -> None:
    talk = Dialogue(
        user(
            {"when": {"turn": 2}, "say": "Two."},
            {"when": {"file": "out"}, "say": "I see it."},
            {"when": {"turn": 4, "no_file": "old"}, "say": "Gone."},
        )
    )
    assert said(talk, 1, files="old") == []
    assert said(talk, 2, "Hello?", files="old") == ["I do not know.", "Two."]
    assert said(talk, 3, files="old out") == ["I see it."]
    assert said(talk, 4, files="old") == []
    assert said(talk, 6) == ["Gone."] and said(talk, 7, files="out") == []


def test_nobody_gets_around_a_request_by_submitting_early() -> None:
    talk = Dialogue(
        user(
            {"name": "r", "when": {"turn": 5}, "say": "Also this.", "request": True},
            {"when": {"file": "a"}, "say": "A."},
        )
    )
    assert said(talk, 1, submits=True) == ["Also this."]
    assert said(talk, 2, files="a", submits=True) == ["A."]
    assert said(talk, 3, files="a", submits=True) == []


def test_words_beside_a_submission_are_heard_and_hold_it_up_once() -> None:
    talk = Dialogue(user({**BUDGET, "again": True}))
    assert said(talk, 1, "Nothing of that.", submits=True) == []
    assert said(talk, 2, "Within the budget.", submits=True) == ["400."]
    assert said(talk, 3, "Within the budget.", submits=True) == []


def test_a_permission_is_only_given_as_long_as_the_file_stands() -> None:
    talk = Dialogue(user({"name": "yes", "when": {"says": "delete", "file": "old"}, "say": "Yes."}))
    assert said(talk, 1, "I will delete it") == ["I do not know."] and talk.heard == frozenset()
    assert said(talk, 2, "May I delete it?", files="old") == ["Yes."] and talk.heard == {"yes"}


def test_of_a_workspace_that_is_not_seen_whole_nothing_is_said_to_be_absent() -> None:
    talk = Dialogue(user({"when": {"no_file": "old"}, "say": "Gone."}))
    cut = Snapshot({})
    cut.cut = True
    assert talk.after(1, cut) == () and said(talk, 2) == ["Gone."]


def test_a_message_that_no_pattern_can_be_searched_in_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.assertions.on_files.REGEX_SECONDS", REGEX_SECONDS / 100)
    talk = Dialogue(user({"when": {"says": "(a|a|aa)+$"}, "say": "Yes."}))
    assert said(talk, 1, "a" * 60 + "!") == ["I do not know."]
    assert said(talk, 2, "a" * 5000 + "budget") == ["Yes."]  # read up to 4000 characters


def test_somebody_else_may_answer_but_requests_stay() -> None:
    class Other:
        label = "other"

        def __init__(self) -> None:
            self.asked: list[Asked] = []

        def answer(self, asked: Asked) -> Said:
            self.asked.append(asked)
            return Said(asked.turn, "Mine.", asked.open[0] if asked.open else None)

    other = Other()
    rules = user(BUDGET, {"name": "r", "when": {"turn": 2}, "say": "Also this.", "request": True})
    talk = Dialogue(rules, "Do it.", other, seed=7)
    assert said(talk, 1, "Hm?") == ["Mine."] and talk.heard == {"budget"}
    assert said(talk, 2, "And?") == ["Mine.", "Also this."]
    assert [(a.open, a.turn, a.seed, a.past[-1].text) for a in other.asked] == [((0,), 1, 7, "Hm?"), ((), 2, 7, "And?")]
    assert said(talk, 3, "Done.", submits=True) == [] and len(other.asked) == 2  # nobody need be asked


def test_a_folder_says_nothing_of_what_the_user_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="heard:budget: judged by what the task's user said, which no folder holds"):
        grade_folder(parse_task(WELL), tmp_path)


def test_heard_looks_at_what_was_said_and_nothing_else() -> None:
    check = Heard(rule="budget")
    never, once = Outcome({}, {}), Outcome({}, {}, heard=frozenset({"budget"}))
    assert check.check(never).verdict is Verdict.FAIL and "never said 'budget'" in check.check(never).detail
    assert check.check(once).verdict is Verdict.PASS and check.untouched(once).heard == frozenset()
    assert not check.on_files and not check.on_answer and check.default_name() == "heard:budget"


# -- What a proof finds ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def proof(sandbox: FakeSandbox, *changes: tuple[str, str]) -> Proof:
    text = WELL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return prove(parse_task(text), sandbox)


def test_a_silent_agent_and_one_that_ignores_the_request_do_not_pass(sandbox: FakeSandbox) -> None:
    found = proof(sandbox)
    assert found.status is Status.PROVEN and found.oracle_rate == 1.0
    assert found.notes == ("user: without speaking and listening the oracle scores 0.00 to 0.67",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([("  - {kind: file_not_exists, path: old.csv}\n", "")], "passes without the user: the oracle, ignoring the request 'more'"),
        ([("  - {kind: heard, rule: budget}\n", ""), ("echo {{money}}", "echo 400")], "passes without the user: the oracle, leaving out message 1"),
        ([("    - cat b\n", "")], "oracle command 3 is for 'more' before the user has asked for that"),
        ([("says: budget", "says: money")], "oracle command 1 printed nothing that the pattern '(\\d+)' of 'money' finds"),
        ([("max_turns: 8", "max_turns: 4")], "the oracle needs 5 turns"),
        ([("intent: write", "turns: 4\nintent: write")], "turns: 4, but what the oracle reads forces no more than 2"),
    ],
    ids=["ignored", "silent", "too early", "not understood", "budget", "turns"],
)  # fmt: skip
def test_a_task_that_does_not_need_its_user_is_told(
    sandbox: FakeSandbox, changes: list[tuple[str, str]], problem: str
) -> None:
    found = proof(sandbox, *changes)
    assert found.status is Status.FAILED and any(problem in line for line in found.problems), found.problems


def test_a_user_without_use_is_told(sandbox: FakeSandbox) -> None:
    task = Task.model_validate(
        {
            "schema_version": 2, "id": "t", "intent": "make b",
            "user": {"rules": [{"when": {"turn": 1}, "say": "Hello."}]},
            "assertions": [{"kind": "file_exists", "path": "b"}, {"kind": "file_not_exists", "path": "c"}],
            "oracle": {"commands": ["touch b"]},
        }
    )  # fmt: skip
    (problem,) = prove(task, sandbox).problems
    assert problem == "the oracle neither says anything nor does what the user asks for on the way: without use"


def test_words_beside_a_command_are_no_message_and_held_submissions_count(sandbox: FakeSandbox) -> None:
    task = parse_task(WELL)
    assert task.oracle is not None
    steps = task.oracle.commands
    alone, beside = play(task, sandbox, steps[:2]), play(task, sandbox, steps[:2], together=[1])
    assert alone.outcome.heard == {"budget", "more"} and alone.held == 1  # the request came at the submission
    assert beside.outcome.heard == {"more"} and beside.outcome.files["b"].content == b"{{money}}\n"


def test_the_example_of_the_documentation_is_proven(sandbox: FakeSandbox) -> None:
    page = (REPOSITORY / "docs" / "tasks.md").read_text(encoding="utf-8")
    example = page.split("### A user who answers\n")[1].split("```yaml\n")[1].split("```")[0]
    found = prove(parse_task(example), sandbox)
    assert found.status is Status.PROVEN, found.problems
