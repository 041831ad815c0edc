"""Recorded cases of the original grader, and users' accounts of what went wrong with task files and grading."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox import FileEntry
from tasks.assertions.base import Outcome, Verdict
from tasks.assertions.grade import grade
from tasks.model import TaskError
from tasks.proof import Status, prove
from tasks.sources import fieldnotes, load_tasks
from tasks.task import Task
from tasks.yaml import load_task, parse_task
from tests.shared_data import shared
from tests.tasks.fake_sandbox import FakeSandbox


def recorded(name: str) -> dict[str, Any]:
    cases = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    found: dict[str, Any] = next(case for case in cases if case["id"] == name)
    return found


def scenario(name: str) -> None:
    """Skip without the list of users' cases; fail if the case is not in it."""
    cases = json.loads(shared("fixtures/user_cases.json").read_text(encoding="utf-8"))
    assert name in {case["id"] for case in cases}


def record(given: dict[str, Any], kept: list[dict[str, Any]]) -> dict[str, Any]:
    return {"intent": "do it", **given, "verifiable_assertions": kept}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_five_kinds_through_the_field_notes_format(moment: str) -> None:
    case = recorded("grader_five_kinds")
    given, wanted = case["inputs"]["task"], case["expected"][moment]["assertions"]
    laid = {file["path"]: file["content"] for file in given["workspace_seed"]["files"]}
    refused = ("weird", "noseed.bin")
    pairs = [
        (item, expected)
        for item, expected in zip(given["verifiable_assertions"], wanted, strict=True)
        if item["kind"] not in refused and item["path"] not in refused
    ]
    assert len(pairs) == 5
    task = fieldnotes.from_record(record(given, [item for item, _ in pairs]))
    now = laid if moment == "before" else {"b.txt": laid["a.txt"], "keep.txt": laid["keep.txt"]}
    files = {path: FileEntry(content=text.encode(), size=len(text)) for path, text in now.items()}
    results = grade(task, Outcome(files=files, initial=task.files())).results
    assert [result.verdict is Verdict.PASS for result in results] == [expected["passed"] for _, expected in pairs]


@pytest.mark.parametrize(("left_out", "words"), [("weird", "unknown kind 'weird'"), ("noseed.bin", "'noseed.bin'")])
def test_what_the_original_passes_over_is_refused(left_out: str, words: str) -> None:
    given = recorded("grader_five_kinds")["inputs"]["task"]
    kept = [item for item in given["verifiable_assertions"] if left_out in (item["kind"], item["path"])]
    with pytest.raises(TaskError, match=words):
        fieldnotes.from_record(record(given, kept))


def test_nothing_to_check_is_no_task() -> None:
    case = recorded("grader_empty_assertions")
    assert case["expected"]["passed"] is True  # all([]) of the original
    with pytest.raises(TaskError, match="is empty"):
        parse_task("id: t\nintent: x\nassertions: []\n")
    with pytest.raises(TaskError, match="is empty"):
        fieldnotes.from_record(record({"task_id": "t", "workspace_seed": {"files": []}}, []))


def test_uc_01_crlf_in_a_script_is_named_or_read_as_plain_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scenario("UC-01")
    text = (
        "id: crlf\nintent: run it\nworkspace:\n  files:\n    setup.sh: |\n      #!/bin/bash\n      set -e\n"
        '      echo ok\n    expected.txt: "a\\r\\nb\\r\\n"\nassertions:\n  - {kind: file_equals, path: out.txt, '
        "equals: ok, loose: true}\n  - {kind: file_unchanged, path: expected.txt}\n"
        "oracle: {commands: [bash setup.sh > out.txt]}\n"
    )
    path = tmp_path / "crlf.yaml"
    path.write_bytes(text.replace("\n", "\r\n").encode())  # the whole file saved with CRLF
    with caplog.at_level(logging.WARNING):
        task = load_task(path)
    assert "has CRLF line endings" in caplog.text
    files = task.files()
    assert files["setup.sh"].content == b"#!/bin/bash\nset -e\necho ok\n"
    assert files["expected.txt"].content == b"a\r\nb\r\n"  # written out as such: it is meant, and compared byte by byte
    with FakeSandbox() as sandbox:
        assert prove(task, sandbox).status is Status.PROVEN
    path.write_text(
        text.replace("setup.sh: |\n", 'setup.sh: "#!/bin/bash\\r\\nset -e\\r\\n"\n').replace(
            "      #!/bin/bash\n      set -e\n      echo ok\n", ""
        )
    )
    with pytest.raises(TaskError, match=r"crlf\.yaml:5: workspace\.files\.setup\.sh: .*script with CRLF"):
        load_task(path)


def test_uc_03_accents_and_spaces_are_found_in_either_form() -> None:
    scenario("UC-03")
    task = Task.model_validate(
        {
            "id": "t",
            "intent": "x",
            "assertions": [{"kind": "file_exists", "path": "donn\u00e9es/rapport \u00e9t\u00e9 2024.csv"}],
            "oracle": {
                "commands": [
                    "mkdir donne\u0301es; printf '\\377\\376' > 'donne\u0301es/rapport e\u0301te\u0301 2024.csv'"
                ],
                "may_survive": {"donne\u0301es/rapport e\u0301te\u0301 2024.csv": "only the name counts here"},
            },
        }
    )
    with FakeSandbox() as sandbox:
        assert prove(task, sandbox).status is Status.PROVEN


@pytest.mark.parametrize("printed", ["nan", "NaN", "inf", "-inf", "1.5", "-0.1", '{"a": NaN}', '{"a": 1.5}', "1e999"])
def test_uc_16_what_is_no_score_is_an_error_and_never_a_reward(printed: str) -> None:
    scenario("UC-16")
    task = Task.model_validate(
        {
            "id": "t",
            "intent": "x",
            "assertions": [{"kind": "script", "command": f"printf '%s' '{printed}'", "mode": "json"}],
        }
    )
    with FakeSandbox() as sandbox:
        proof = prove(task, sandbox)
    assert proof.noop_rate is None
    assert proof.status is Status.FAILED


def test_uc_18_seed_0_is_a_seed() -> None:
    scenario("UC-18")
    hashes = [
        [task.content_hash for task in load_tasks(f"generated:quickstart?n=20&seed={seed}")] for seed in (0, 0, 1)
    ]
    assert hashes[0] == hashes[1] != hashes[2]
