# ruff: noqa: E501 (one case a line)
"""Each mistake of a newcomer gets the line, the key and what to do; see also test_yaml_io."""

from __future__ import annotations

import pytest

from tasks.model import TaskError
from tasks.yaml import parse_task

WELL = """\
id: demo
intent: do it
workspace:
  files:
    a.txt: hello
assertions:
  - {kind: file_exists, path: b}
"""


def complaints(text: str) -> list[str]:
    with pytest.raises(TaskError) as caught:
        parse_task(text, "my.yaml")
    return str(caught.value).split("\n")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("intent:", "intnt:", "my.yaml:2: intnt: unknown key 'intnt': did you mean 'intent'?"),
        ("a.txt: hello", "a.txt: yes", "my.yaml:5: workspace.files.a.txt: `yes` is read by YAML as a boolean, but text is meant here: put it in quotes: \"yes\""),
        ("a.txt: hello", "a.txt: 12", 'as a number, but text is meant here: put it in quotes: "12"'),
        ("a.txt: hello", "a.txt: 2024-01-01", 'as a date, but text is meant here: put it in quotes: "2024-01-01"'),
        ("a.txt: hello", "a.txt:", "my.yaml:5: workspace.files.a.txt: has no value"),
        ("a.txt: hello", "a.txt: [x]", "needs a mapping of keys to values, but has a list"),
        ("a.txt: hello", "a.txt: {txt: x}", "my.yaml:5: workspace.files.a.txt.txt: unknown key 'txt': did you mean 'text'?"),
        ("a.txt: hello", "a.txt: {text: x, mode: 0755}", 'workspace.files.a.txt.mode: `0755` is read by YAML as a number, but text is meant here: put it in quotes: "0755"'),
        ("a.txt: hello", "a.txt: {text: no}", 'put it in quotes: "no"'),
        ("a.txt: hello", "/a.txt: hello", "my.yaml:5: workspace.files./a.txt: path '/a.txt' is absolute"),
        ("a.txt: hello", "../a: hello", "leaves the workspace"),
        ("a.txt: hello", 's.sh: "ls\\r\\n"', "my.yaml:5: workspace.files.s.sh: 's.sh' is a script with CRLF line endings"),
        ("workspace:", "workspaces:", "my.yaml:3: workspaces: unknown key 'workspaces': did you mean 'workspace'?"),
        ("kind: file_exists", "kind: file_exist", "my.yaml:7: assertions[0]: unknown kind 'file_exist': did you mean 'file_exists'?"),
        ("kind: file_exists, ", "", "my.yaml:7: assertions[0]: needs a kind (valid: file_exists,"),
        ("path: b", "pth: b", "my.yaml:7: assertions[0].pth: unknown key 'pth': did you mean 'path'?"),
        ("path: b", "path: 3", 'assertions[0].path: `3` is read by YAML as a number, but text is meant here: put it in quotes: "3"'),
        ("file_exists, path: b", "file_contains, path: b, contains: yes", 'assertions[0].contains: `yes` is read by YAML as a boolean, but text is meant here: put it in quotes: "yes"'),
        ("file_exists, path: b", "file_contains, path: b, contains: [x, on]", 'assertions[0].contains[1]: `on` is read'),
        ("file_exists, path: b", "file_contains, path: b, contains: []", "assertions[0].contains: is empty"),
        ("file_exists, path: b", "file_contains, path: b", "assertions[0].contains: is missing"),
        ("file_exists, path: b", "file_matches, path: b, pattern: '('", "assertions[0].pattern: the pattern '(' is no regular expression"),
        ("file_exists, path: b", "file_unchanged, path: b", "my.yaml:7: assertions[0].path: file_unchanged needs a path of the workspace"),
        ("  - {kind: file_exists, path: b}", "  []", "my.yaml:6: assertions: is empty: a task without assertions can never pass"),
        ("  - {kind: file_exists, path: b}", "  - b", "assertions[0]: needs a mapping of keys to values, but has the text"),
        ("  - {kind: file_exists, path: b}", "", "assertions: has no value"),
        ("id: demo", "id: Demo", "my.yaml:1: id: 'Demo' is no id"),
        ("id: demo", "id: 7", 'put it in quotes: "7"'),
        ("id: demo\n", "", "id: is missing"),
        ("id: demo", "id: demo\nsplit: heldout", "my.yaml:2: split: 'heldout' is not valid: did you mean 'held_out'?"),
        ("id: demo", "id: demo\nsplit: no", 'put it in quotes: "no"'),
        ("id: demo", 'id: demo\nschema_version: "1"', "my.yaml:2: schema_version: '1' is a text, and a number is needed: leave the quotes out"),
        ("id: demo", "id: demo\nschema_version: 3", "schema_version: '3' is not valid: (valid: 1, 2)"),
        ("id: demo", "id: demo\nbudget: {max_turns: many}", 'budget.max_turns: must be a valid integer, but is the text "many"'),
        ("id: demo", "id: demo\nbudget: {turns: 3}", "budget.turns: unknown key 'turns': did you mean 'max_turns'?"),
        ("id: demo", "id: demo\nbudget: 3", "budget: needs a mapping of keys to values, but has a number"),
        ("id: demo", "id: demo\noracle: {comands: [ls]}", "my.yaml:2: oracle.comands: unknown key 'comands': did you mean 'commands'?"),
        ("id: demo", "id: demo\noracle:\n  commands: [ls]\n  alternatives:\n    - [ls, ' ']", "my.yaml:5: oracle.alternatives[0][1]: command 2 of oracle alternative 1 is blank"),
        ("id: demo", "id: demo\noracle:\n  commands: [ls]\n  alternatives: [ls]", "my.yaml:4: oracle.alternatives[0]: needs a list"),
        ("id: demo", "id: demo\noracle: {answer: yes}", 'my.yaml:2: oracle.answer: `yes` is read by YAML as a boolean'),
        ("id: demo", "id: demo\npersona: {rol: cook}", "my.yaml:2: persona.rol: unknown key 'rol': did you mean 'role'?"),
        ("a.txt: hello", "a.txt: {symlink: ../x}", "my.yaml:5: workspace.files.a.txt: the link 'a.txt' leaves the workspace"),
        ("id: demo", "id: demo\ntags: x", "tags: needs a list"),
        ("id: demo", "id: demo\noracle: {commands: ls}", "oracle.commands: needs a list: write each item on its own line after `- `"),
        ("id: demo", "id: demo\noracle:\n  commands:\n    - grep 'a: b' x", "my.yaml:4: oracle.commands[0]: is read by YAML as a mapping, because of a `: ` in it"),
    ],
)  # fmt: skip
def test_one_mistake_one_complaint(old: str, new: str, wanted: str) -> None:
    assert old in WELL
    found = complaints(WELL.replace(old, new, 1))
    assert len(found) == 1, found
    assert wanted in found[0]
    assert found[0].startswith("my.yaml:")


def test_all_mistakes_of_a_file_are_listed_in_its_order() -> None:
    found = complaints(WELL.replace("demo", "De mo").replace("hello", "no").replace("path", "pth"))
    assert [line.split(": ")[0] for line in found] == ["my.yaml:1", "my.yaml:5", "my.yaml:7"]
