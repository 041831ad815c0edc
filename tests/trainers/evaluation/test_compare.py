from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainers.fake_run import held_out_episodes, make_run, task
from trainers.errors import RunFolderError
from trainers.evaluation.compare import Arms, compare_arms, read_arms

TASKS = [task(i, "held") for i in range(20)]
HASHES = {t.id: t.content_hash for t in TASKS}


def arms(step: int, name: str, hashes: dict[str, str] | None = None) -> Arms:
    return Arms(name, held_out_episodes(TASKS, step, 10, 0)[1], HASHES if hashes is None else hashes)


def lines(first: Arms, second: Arms) -> str:
    return "\n".join(part for part in compare_arms(first, second) if isinstance(part, str))


def test_each_shared_setting_is_compared() -> None:
    text = lines(arms(0, "a"), arms(8, "b"))
    assert text.count("paired p") == 2 and "on 20 shared tasks" in text
    assert "decode settings differ" not in text


def test_decode_settings_that_differ_are_said() -> None:
    a, b = arms(0, "a"), arms(8, "b")
    only = Arms("a", {"sampled": a.settings["sampled"]}, HASHES)
    other = Arms("b", {"T=0.7": replace(b.settings["sampled"], sampling="T=0.7")}, HASHES)
    assert "the decode settings differ:[/] A T=1, max_tokens=64; B T=0.7" in lines(only, other)


def test_agent_errors_that_differ_are_said(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=10)
    assert read_arms(folder).agent_errors == ""  # a folder of an earlier release
    with open(folder / "config.yaml", "a", encoding="utf-8") as file:
        file.write("agent_errors: error\n")
    second = replace(arms(8, "b"), agent_errors="fail")
    assert "agent_errors differs:[/] A error; B fail" in lines(read_arms(folder), second)
    assert "agent_errors" not in lines(arms(0, "a"), second)


def test_same_id_with_other_content_is_left_out() -> None:
    changed = {**HASHES, TASKS[0].id: "other", TASKS[1].id: "other"}
    text = lines(arms(0, "a"), arms(8, "b", changed))
    assert "2 tasks have the same id and other content" in text and "on 18 shared tasks" in text


def test_no_task_in_common_is_unpaired() -> None:
    a = arms(0, "a")
    b = held_out_episodes([task(100 + i, "held") for i in range(20)], 8, 10, 0)[1]
    text = lines(a, Arms("b", b, {}))
    assert "no task in common: unpaired p" in text and "paired p 1" not in text.replace("unpaired p", "")


def test_several_settings_without_a_common_one_are_refused() -> None:
    a, b = arms(0, "a"), arms(8, "b")
    renamed = Arms("b", {f"other-{name}": m for name, m in b.settings.items()}, HASHES)
    with pytest.raises(RunFolderError, match="no decode setting in common"):
        list(compare_arms(a, renamed))


def test_missing_episodes_are_said() -> None:
    assert "2 tasks have a graded attempt on one side only" in lines(arms(0, "a"), arms(10, "b"))


def test_a_run_folder_is_compared_at_its_chosen_step(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=10)
    found = read_arms(folder)
    assert found.name.endswith("(step 10)") or found.name.endswith("(step 0)")
    assert len(found.hashes) == 10 and set(found.settings) == {"sampled", "greedy"}
    with pytest.raises(RunFolderError, match="is no run folder"):
        read_arms(tmp_path)
