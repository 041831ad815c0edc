# ruff: noqa: E501 (one case a line)
"""Every key of version 2: an example that is right, and ten that are wrong, each told by file, line, key and remedy."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox import EntryKind
from tasks.model import TaskError
from tasks.sources import load_tasks, task_files
from tasks.task import Task
from tasks.workspace import MAX_FILE_BYTES
from tasks.yaml import dump_task, load_file, load_task, parse_task

TAIL = "assertions: [{kind: file_exists, path: b}]\n"
WELL = f"schema_version: 2\nid: demo\nintent: do it\n{TAIL}"

RIGHT = {
    "turns": "turns: 3\n",
    "reads": "oracle:\n  commands:\n    - {run: cat a, reads: {x: 'is (\\d+)'}}\n    - touch {{x}}\n",
    "metadata": "metadata: {author: Ann, from: [1, 2.5, null, {a: true}]}\n",
    "from": "workspace: {from: fixtures/orders, files: {own.txt: mine}}\n",
    "parameters": "parameters: {n: 2, values: {who: [ann, bob]}}\nworkspace: {files: {a: '{{who}}'}}\n",
}
"""What is written behind `WELL` for each key."""

READS = "oracle:\n  commands:\n    - run: cat a\n      reads: "
PARAMETERS = "workspace: {files: {a: '{{who}}'}}\nparameters:\n  n: 2\n  values: "

WRONG: dict[str, list[tuple[str, str]]] = {
    "turns": [
        ("turns: 1", "5: turns: must be greater than or equal to 2, but is a number 1"),
        ("turns: 0", "5: turns: must be greater than or equal to 2"),
        ("turns: -3", "5: turns: must be greater than or equal to 2"),
        ("turns: 1001", "5: turns: must be less than or equal to 1000"),
        ('turns: "3"', '5: turns: must be a valid integer, but is the text "3"'),
        ("turns: 2.5", "5: turns: must be a valid integer, but is a number 2.5"),
        ("turns: yes", "5: turns: must be a valid integer, but is a boolean true"),
        ("turns: [3]", "5: turns: must be a valid integer, but is a list [3]"),
        ("turns: 13", "5: turns: a task that needs 13 turns cannot be done in max_turns: 12"),
        ("turn: 3", "5: turn: unknown key 'turn': did you mean 'turns'?"),
    ],
    "reads": [
        (READS + "{}", "8: oracle.commands[0].reads: is empty: name what is read, or write the command as plain text"),
        (READS + "{a b: '(x)'}", "8: oracle.commands[0].reads.a b: 'a b' is no name: use letters, digits and '_'"),
        (READS + "{x: 'is x'}", "8: oracle.commands[0].reads.x: the pattern needs exactly one group, around what is read, but has 0: write for example"),
        (READS + "{x: '(a)(b)'}", "8: oracle.commands[0].reads.x: the pattern needs exactly one group, around what is read, but has 2"),
        (READS + "{x: '(a'}", "8: oracle.commands[0].reads.x: the pattern '(a' is no regular expression"),
        (READS + "{x: 7}", '8: oracle.commands[0].reads.x: `7` is read by YAML as a number, but text is meant here: put it in quotes: "7"'),
        (READS + "[x]", "8: oracle.commands[0].reads: needs a mapping of keys to values, but has a list"),
        ("oracle:\n  commands:\n    - reads: {x: '(a)'}", "7: oracle.commands[0].run: is missing"),
        (READS + "{x: '(a)'}\n    - touch {{y}}", "9: oracle.commands[1]: unknown name 'y': (valid: x)"),
        ("oracle:\n  commands:\n    - touch {{y}}", "7: oracle.commands[0]: no command before reads 'y': write the one that shows it as {run: ..., reads: {y:"),
        (READS + "{x: '(a)'}\n    - {run: b, reads: {x: '(b)'}}", "9: oracle.commands[1].reads.x: 'x' is read twice: give the second one another name"),
        (READS + "{x: '(a)'}\n  answer: '{{y}}'", "9: oracle.answer: unknown name 'y'"),
        (READS + "{x: '(a)'}\n  alternatives: [['touch {{x}}']]", "9: oracle.alternatives[0][0]: no command before reads 'x'"),
        ("oracle:\n  commands:\n    - {run: ls, read: {x: '(a)'}}", "7: oracle.commands[0].read: unknown key 'read': did you mean 'reads'?"),
    ],
    "metadata": [
        ("metadata: 3", "5: metadata: needs a mapping of keys to values, but has a number"),
        ("metadata: Ann", "5: metadata: needs a mapping of keys to values, but has the text"),
        ("metadata: [a]", "5: metadata: needs a mapping of keys to values, but has a list"),
        ("metadata:", "5: metadata: has no value"),
        ("metadata: {made: 2026-01-02}", "5: metadata.made: 2026-01-02 is a date, which JSON cannot hold: write it as text, in quotes"),
        ("metadata:\n  a:\n    - 1\n    - {b: 2026-01-02 10:00:00}", "8: metadata.a[1].b: 2026-01-02 10:00:00 is a datetime, which JSON cannot hold"),
        ("metadata: {x: .nan}", "5: metadata.x: the number nan has no form in JSON: write it as text, in quotes"),
        ("metadata: {x: [-.inf]}", "5: metadata.x[0]: the number -inf has no form in JSON"),
        ("metadata: {1: x}", '5: metadata: the key `1` is not read as text: put it in quotes: "1"'),
        ("metadata: {a: 1, a: 2}", "5: metadata.a: the key 'a' stands here twice (first in line 5): remove or rename one"),
        ('metadata: {"": x}', "5: metadata.: is empty"),
    ],
    "from": [
        ("workspace: {from: nowhere}", "5: workspace.from: there is no folder 'nowhere' beside this file: make it, or correct the path"),
        ("workspace: {from: fixtures/orders/a.csv}", "5: workspace.from: 'fixtures/orders/a.csv' is no folder: name the one that it lies in, or write its content under files"),
        ("workspace: {from: /etc}", "5: workspace.from: '/etc' is no folder below this file's: write its path from there"),
        ("workspace: {from: ../other}", "5: workspace.from: '../other' is no folder below this file's"),
        ("workspace: {from: .}", "5: workspace.from: '.' is no folder below this file's"),
        ("workspace: {from: ~/x}", "5: workspace.from: '~/x' is no folder below this file's"),
        ("workspace: {from: []}", "5: workspace.from: needs a folder, or a list of folders, by their paths from this file's"),
        ("workspace: {from: {a: b}}", "5: workspace.from: needs a folder, or a list of folders"),
        ("workspace: {from: 7}", "5: workspace.from: needs a folder, or a list of folders"),
        ("workspace:\n  from: [fixtures/orders, gone]", "6: workspace.from: there is no folder 'gone' beside this file"),
        ("workspace: {from: away}", "5: workspace.from: 'away' leads out of this file's folder by a link: put the folder itself there"),
        ("workspace: {form: fixtures}", "5: workspace.form: unknown key 'form': did you mean 'from'? (valid: files, dirs, from)"),
        ("workspace: {from: fixtures/fifo}", "5: workspace.from: 'fixtures/fifo/pipe' is neither file, folder nor link (a fifo, a socket or a device): remove it"),
        ("workspace: {from: fixtures/socket}", "5: workspace.from: 'fixtures/socket/s' is neither file, folder nor link"),
        ("workspace: {from: fixtures/large}", f"5: workspace.from: 'fixtures/large/f' has {MAX_FILE_BYTES + 1} bytes, and a file may have {MAX_FILE_BYTES}: make it smaller"),
        ("workspace: {from: fixtures/link}", "5: workspace.from: the link 'd/l' leaves the workspace: '../../x': give one in it, relative to the link"),
        ("workspace: {from: fixtures/crlf}", "5: workspace.from: 'run.sh' is a script with CRLF line endings (its line 1)"),
        ("workspace: {from: fixtures/control}", "5: workspace.from: path 'a\\tb' holds a control character"),
        ("workspace: {from: fixtures/orders}\nworkdir: x", "6: workdir: "),
        ("workspace: {from: fixtures/" + "x" * 300 + "}", "5: workspace.from: 'fixtures/" + "x" * 300 + "' cannot be read (File name too long): check path and permissions"),
    ],
    "parameters": [
        (PARAMETERS + "{}", "8: parameters.values: is empty: name at least one parameter and its values"),
        (PARAMETERS + "{who: []}", "8: parameters.values.who: is empty: give at least one value"),
        (PARAMETERS + "{who: ann}", "8: parameters.values.who: needs a list of values, or whole numbers as {min: 1, max: 9}"),
        (PARAMETERS + "{who: [ann, ann]}", "8: parameters.values.who[1]: 'ann' stands twice: remove one"),
        (PARAMETERS + "{who: [ann, yes]}", "8: parameters.values.who[1]: is neither a text nor a number: put it in quotes if it is text"),
        (PARAMETERS + "{who: {min: 3, max: 2}}", "8: parameters.values.who.max: max is 2, less than min: 3: swap them"),
        (PARAMETERS + "{who: {min: 3}}", "8: parameters.values.who.max: is missing"),
        (PARAMETERS + "{who: [ann]}", "7: parameters.n: asks for 2 tasks, but the values make only 1 that differ in what they ask, lay out or check: give a parameter more values, or lower n"),
        (PARAMETERS + "{who: [ann, bob], count: [1]}", "8: parameters.values.count: nothing holds {{count}}: use it, or remove it"),
        (PARAMETERS + "{whom: [ann, bob]}", "5: workspace.files.a: unknown parameter 'who': did you mean 'whom'? (valid: whom)"),
        (PARAMETERS + "{'a b': [ann]}", "8: parameters.values.a b: 'a b' is no name: use letters"),
        ("parameters: {n: 0, values: {who: [a]}}", "5: parameters.n: must be greater than or equal to 1, but is a number 0"),
        ("parameters: {n: 2, sed: 1, values: {who: [a]}}", "5: parameters.sed: unknown key 'sed': did you mean 'seed'? (valid: n, seed, values)"),
        ("parameters: {values: {who: [a]}}", "5: parameters.n: is missing"),
        ("parameters: 3", "5: parameters: needs a mapping of keys to values, but has a number"),
        (PARAMETERS + "{who: [a, b]}\nfamily: mine", "9: family: the family of a template's tasks is the template's id: leave it out"),
        (PARAMETERS + "{who: [../x, b]}\ntags: ['{{who}}']\nworkdir: 'x{{who}}'", "10: workdir: "),
        (PARAMETERS + "{who: [a, b]}\noracle: {commands: [{run: ls, reads: {who: '(a)'}}]}", "9: oracle.commands[0].reads.who: 'who' is a parameter, too: give what is read another name"),
        (PARAMETERS + "{who: [a, b]}\noracle: {commands: ['ls {{wo}}']}", "9: oracle.commands[0]: unknown parameter 'wo': did you mean 'who'?"),
        (PARAMETERS + "{who: [a, b]}\noracle: {commands: [{run: ls, reads: {x: '(a)'}}]}\npersona: {role: '{{x}}'}", "10: persona.role: unknown parameter 'x'"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tasks with fixtures of all kinds."""
    base = tmp_path_factory.mktemp("tasks")
    orders = base / "fixtures/orders"
    (orders / "deep/empty").mkdir(parents=True)
    (orders / "a.csv").write_bytes(b"a,b\r\n1,2\r\n")
    (orders / "logo.bin").write_bytes(b"\x00\xff\xfe")
    (orders / "deep/run.sh").write_text("echo hi\n")
    (orders / "deep/run.sh").chmod(0o775)
    (orders / "latest").symlink_to("deep/run.sh")
    (orders / "note.yaml").write_text("no: [task\n")
    (orders / ".hidden").write_text("")
    for name in ("fifo", "socket", "large", "link/d", "crlf", "control", "more"):
        (base / "fixtures" / name).mkdir(parents=True)
    os.mkfifo(base / "fixtures/fifo/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(base / "fixtures/socket")  # the path of a socket is short
        try:
            server.bind("s")
        finally:
            os.chdir(here)
    with (base / "fixtures/large/f").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (base / "fixtures/link/d/l").symlink_to("../../x")
    (base / "fixtures/crlf/run.sh").write_bytes(b"ls\r\n")
    (base / "fixtures/control/a\tb").write_text("")
    (base / "fixtures/more/a.csv").write_text("more\n")
    (base / "away").symlink_to("/etc")
    return base


def load(folder: Path, text: str) -> list[Task]:
    file = folder / "t.yaml"
    file.write_text(text)
    return load_file(file)


@pytest.mark.parametrize("key", RIGHT)
def test_the_right_example_of_a_key(key: str, folder: Path) -> None:
    for task in load(folder, WELL + RIGHT[key]):
        assert parse_task(dump_task(task)) == task
        assert pickle.loads(pickle.dumps(task)) == task
        assert parse_task(dump_task(task)).content_hash == task.content_hash


@pytest.mark.parametrize("key", RIGHT)
def test_version_1_does_not_know_the_key(key: str, folder: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load(folder, (WELL + RIGHT[key]).replace("version: 2", "version: 1"))
    (problem,) = caught.value.problems
    assert problem.key.endswith(key) and problem.line and problem.line > 4
    assert problem.message == f"unknown key '{key}' in version 1: write schema_version: 2"


@pytest.mark.parametrize(("key", "text", "wanted"), [(key, *case) for key, cases in WRONG.items() for case in cases])
def test_a_wrong_example_of_a_key(key: str, text: str, wanted: str, folder: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load(folder, f"{WELL}{text}\n")
    first = str(caught.value).split("\n")[0]
    assert first.startswith(f"{folder}/t.yaml:{wanted}"), str(caught.value)
    assert len(caught.value.problems) == 1, str(caught.value)


def test_each_key_has_ten_wrong_examples() -> None:
    assert WRONG.keys() == RIGHT.keys()
    assert all(len(cases) >= 10 for cases in WRONG.values())


# -- workspace.from ---------------------------------------------------------------------------------------------------


def written_out(**changes: Any) -> Task:
    files = {
        ".hidden": "",
        "a.csv": "a,b\r\n1,2\r\n",
        "deep/run.sh": {"text": "echo hi\n", "mode": "0755"},
        "latest": {"symlink": "deep/run.sh"},
        "logo.bin": {"base64": "AP/+"},
        "note.yaml": "no: [task\n",
    }
    assertions = [{"kind": "file_exists", "path": "b"}]
    workspace = {"files": {**files, **changes}, "dirs": ["deep/empty"]}
    return Task.model_validate(
        {"schema_version": 2, "id": "demo", "intent": "do it", "assertions": assertions, "workspace": workspace}
    )


def test_a_folder_is_as_if_it_were_written_out(folder: Path) -> None:
    (task,) = load(folder, WELL + "workspace: {from: fixtures/orders}\n")
    assert task.files() == written_out().files()
    assert task.files()["logo.bin"].content == b"\x00\xff\xfe"
    assert task.files()["latest"].kind is EntryKind.SYMLINK
    assert task.content_hash == written_out().content_hash
    assert task.meaning_hash == written_out().meaning_hash


def test_files_win_over_folders_and_later_folders_over_earlier_ones(folder: Path) -> None:
    (task,) = load(folder, WELL + "workspace: {from: [fixtures/orders, fixtures/more]}\n")
    assert task.files() == written_out(**{"a.csv": "more\n"}).files()
    (task,) = load(
        folder, WELL + "workspace: {from: fixtures/orders, files: {./a.csv: own, deep: file, latest/x: y}}\n"
    )
    assert list(task.files()) == [".hidden", "a.csv", "deep", "latest", "latest/x", "logo.bin", "note.yaml"]
    assert task.files()["a.csv"].content == b"own" and task.files()["deep"].content == b"file"
    assert task.files()["latest"].kind is EntryKind.DIR


def test_a_loaded_task_needs_its_folder_no_more(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/f").write_text("x")
    (task,) = load(tmp_path, WELL + "workspace: {from: here}\n")
    shutil.rmtree(tmp_path / "here")
    assert pickle.loads(pickle.dumps(task)).files()["f"].content == b"x"
    assert parse_task(dump_task(task)).files() == task.files()


def test_yaml_in_a_folder_that_is_laid_is_no_task(folder: Path) -> None:
    load(folder, WELL + "workspace: {from: fixtures/orders}\n")
    assert [file.name for file in task_files(folder)] == ["t.yaml"]
    assert [task.id for task in load_tasks(folder)] == ["demo"]
    load(
        folder,
        f"{WELL}workspace: {{from: 'fixtures/{{{{kind}}}}'}}\nparameters: {{n: 2, values: {{kind: [orders, more]}}}}\n",
    )
    assert [task.id for task in load_tasks(folder)] == ["demo-0001", "demo-0002"]


def test_text_of_no_file_has_no_folder() -> None:
    with pytest.raises(TaskError, match="workspace.from: a task that is read from no file has no folder beside it"):
        parse_task(WELL + "workspace: {from: fixtures}\n")


# -- parameters -------------------------------------------------------------------------------------------------------

TEMPLATE = """\
schema_version: 2
id: lines
intent: Write {{name}} {{count}} times into {{name}}.txt
workspace: {files: {"{{name}}/in": "{{ name }}{{count}}"}}
parameters: {n: 5, seed: 0, values: {name: [ann, bob, 7], count: {min: 2, max: 4}}}
metadata: {of: "{{name}}"}
assertions:
  - {kind: line_count, path: "{{name}}.txt", equals: "{{count}}"}
  - {kind: file_contains, path: "{{name}}.txt", contains: "{{name}}"}
oracle:
  commands:
    - run: wc -c {{name}}/in
      reads: {bytes: '(\\d+)'}
    - for i in $(seq {{count}}); do echo {{name}} > {{name}}.txt; done; echo {{bytes}}
"""


def test_a_template_makes_a_family(tmp_path: Path) -> None:
    tasks = load(tmp_path, TEMPLATE)
    assert [task.id for task in tasks] == [f"lines-000{n}" for n in range(1, 6)]
    assert {task.family for task in tasks} == {"lines"}
    assert len({task.meaning_hash for task in tasks}) == 5
    for task in tasks:
        (path,) = (path for path in task.files() if path.endswith("/in"))
        name = path.removesuffix("/in")
        content = task.files()[path].content
        assert content is not None
        count = content.decode().removeprefix(name)
        assert task.intent == f"Write {name} {count} times into {name}.txt"
        assert task.assertions[0].describe() == f"{name}.txt has {count} lines"
        assert task.assertions[1].describe() == f"{name}.txt contains '{name}'"
        assert task.oracle is not None and task.oracle.commands[1] == (
            f"for i in $(seq {count}); do echo {name} > {name}.txt; done; echo {{{{bytes}}}}"
        )
        assert str(task.metadata["of"]) == name


def test_the_same_seed_makes_the_same_tasks_and_fewer_are_the_beginning(tmp_path: Path) -> None:
    tasks = load(tmp_path, TEMPLATE)
    assert load(tmp_path, TEMPLATE) == tasks
    assert load(tmp_path, TEMPLATE.replace("n: 5", "n: 3")) == tasks[:3]
    assert load(tmp_path, TEMPLATE.replace(", seed: 0", "")) == tasks
    assert load(tmp_path, TEMPLATE.replace("seed: 0", "seed: 1")) != tasks
    every = load(tmp_path, TEMPLATE.replace("n: 5", "n: 9"))
    assert len({task.meaning_hash for task in every}) == 9 and every[:5] == tasks
    with pytest.raises(TaskError, match="asks for 10 tasks, but the values make only 9 that differ"):
        load(tmp_path, TEMPLATE.replace("n: 5", "n: 10"))


def test_twins_are_drawn_again(tmp_path: Path) -> None:
    alike = TEMPLATE.replace("[ann, bob, 7]", "[ann]").replace("{min: 2, max: 4}", "{min: 2, max: 4}, x: [a, A, b]")
    alike = alike.replace("intent: Write", "intent: Write {{x}},")  # the case of an intent does not make another task
    tasks = load(tmp_path, alike.replace("n: 5", "n: 6"))
    assert len({task.meaning_hash for task in tasks}) == 6
    with pytest.raises(TaskError, match="asks for 7 tasks, but the values make only 6"):
        load(tmp_path, alike.replace("n: 5", "n: 7"))


def test_a_fault_of_one_choice_says_which(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, TEMPLATE.replace("bob, 7", "../x"))
    assert {problem.line for problem in caught.value.problems} == {4, 8, 9}
    assert all(str(problem).startswith(f"{tmp_path}/t.yaml:") for problem in caught.value.problems)
    assert "workspace.files.{{name}}/in: path '../x/in' leaves the workspace" in str(caught.value)
    assert "(with name=../x, count=" in str(caught.value)


def test_two_keys_may_not_become_one(tmp_path: Path) -> None:
    text = TEMPLATE.replace('{files: {"{{name}}/in"', '{files: {ann/in: x, "{{name}}/in"').replace(
        "[ann, bob, 7]", "[ann]"
    )
    with pytest.raises(TaskError, match="4: workspace.files.{{name}}/in: two keys become 'ann/in': rename one"):
        load(tmp_path, text)


def test_a_template_is_no_single_task(tmp_path: Path) -> None:
    load(tmp_path, TEMPLATE)
    with pytest.raises(TaskError, match="is a template of 5 tasks, where one task is wanted"):
        load_task(tmp_path / "t.yaml")
