from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shared_data import REPOSITORY
from tests.trainers.fake_run import held_out_episodes, make_run, task
from trainers.errors import RunFolderError
from trainers.evaluate import main
from trainers.evaluation.arms import Arms, read_arms
from trainers.evaluation.compare import Comparison, Said, compare
from trainers.evaluation.compared import shown
from trainers.measure import Measurement, measure, parts_of
from trainers.paired import mcnemar_power
from trainers.stats import wilson

SHARES = (0.1, 0.2, 0.3, 0.5)
TASKS = [task(i, "held") for i in range(20)]
HASHES = {t.id: t.content_hash for t in TASKS}
MEASURED = {step: held_out_episodes(TASKS, step, 10, 0)[1] for step in (0, 8, 10)}


def arms(step: int, name: str, hashes: dict[str, str] | None = None) -> Arms:
    return Arms(name, MEASURED[step], HASHES if hashes is None else hashes, parts=parts_of(TASKS))


def lines(*several: Arms) -> str:
    return "\n".join(part for part in shown(compare(several)) if isinstance(part, str))


def with_passes(passes: dict[str, list[bool]], name: str = "a") -> Arms:
    """An evaluation with these passes."""
    n, passed = sum(map(len, passes.values())), sum(map(sum, passes.values()))
    empty = measure([], "T=1")
    m = replace(empty, n=n, graded=n, tasks=len(passes), passed=passed, pass_rate=passed / n, outcomes=passes)
    return Arms(name, {"sampled": m}, {})


def test_each_shared_setting_is_compared_and_p_is_corrected_for_all() -> None:
    found = compare([arms(0, "a"), arms(8, "b"), arms(10, "c")])
    assert [(one.second, one.arms[0]) for one in found] == [
        ("b", "sampled"), ("b", "greedy"), ("c", "sampled"), ("c", "greedy")
    ]  # fmt: skip
    smallest = min(found, key=lambda one: one.test.p_value)
    assert smallest.p_holm == pytest.approx(min(1.0, 4 * smallest.test.p_value))
    text = lines(arms(0, "a"), arms(8, "b"))
    assert text.count("paired p") == 2 and "on 20 shared tasks" in text and "different settings" not in text


@pytest.mark.parametrize(
    ("first", "second", "said", "words"),
    [
        ([False] * 40, [True] * 10 + [False] * 30, Said.IMPROVEMENT, "improvement: B minus A is +25.0 points [+"),
        ([True] * 40, [True] * 30 + [False] * 10, Said.DEGRADATION, "degradation: B minus A is -25.0 points [-"),
        ([True] * 40, [True] * 39 + [False], Said.NO_DIFFERENCE, "40 tasks would have shown one of 19 points"),
        ([True] * 4, [False] * 4, Said.NO_DIFFERENCE, "so few tasks could not have shown any difference"),
    ],
)
def test_the_sentence_is_what_the_data_allow(first: list[bool], second: list[bool], said: Said, words: str) -> None:
    sides = [with_passes({str(i): [passed] for i, passed in enumerate(side)}) for side in (first, second)]
    (one,) = compare(sides)
    assert one.said is said and words in one.sentence()
    assert one.interval is not None and one.interval.low <= one.test.difference <= one.interval.high


def test_settings_that_differ_leave_no_verdict_and_are_said() -> None:
    a, b = arms(0, "a"), arms(8, "b")
    only = replace(a, settings={"sampled": a.settings["sampled"]}, manner={"agent_errors": "error", "env": "E"})
    colder = {"T=0.7": replace(b.settings["sampled"], sampling="T=0.7")}
    other = replace(b, settings=colder, manner={"agent_errors": "fail", "max_turns": "8"})
    (one,) = compare([only, other])
    assert one.said is Said.OTHER_SETTINGS
    assert one.sentence() == (
        "different settings, so no verdict: decode settings: A T=1, max_tokens=64; B T=0.7; "
        "agent_errors: A error; B fail"
    )
    assert "improvement" not in lines(only, other)


def test_same_id_with_other_content_is_left_out() -> None:
    changed = {**HASHES, TASKS[0].id: "other", TASKS[1].id: "other"}
    text = lines(arms(0, "a"), arms(8, "b", changed))
    assert "2 tasks have the same id and other content" in text and "on 18 shared tasks" in text


def test_no_task_in_common_is_unpaired_and_no_verdict() -> None:
    b = held_out_episodes([task(100 + i, "held") for i in range(20)], 8, 10, 0)[1]
    text = lines(arms(0, "a"), Arms("b", b, {}))
    assert "no task in common: unpaired p" in text and "different settings, so no verdict: no task in common" in text


def test_several_settings_without_a_common_one_are_refused() -> None:
    a, b = arms(0, "a"), arms(8, "b")
    renamed = Arms("b", {f"other-{name}": m for name, m in b.settings.items()}, HASHES)
    with pytest.raises(RunFolderError, match="no decode setting in common"):
        compare([a, renamed])


def test_missing_episodes_are_said() -> None:
    assert "2 tasks have a graded attempt on one side only" in lines(arms(0, "a"), arms(10, "b"))


def test_parts_add_up_to_the_shared_tasks() -> None:
    found = compare([arms(0, "a"), arms(10, "b")])
    for one in found:
        families = one.parts["family"]
        assert sum(row.tasks for row in families.values()) == one.test.tasks
        graded = [sum(len(m.outcomes[t]) for t in one.a.outcomes if t in one.b.outcomes) for m in (one.a, one.b)]
        assert [sum(getattr(row, side)[1] for row in families.values()) for side in ("first", "second")] == graded
        assert all(row.interval and row.interval.low < row.interval.high for row in families.values())


def test_a_run_folder_is_compared_at_its_chosen_step_and_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (make_run(tmp_path / name, steps=10, n_held_out=10, seed=seed) for seed, name in enumerate("ab"))
    with open(first / "config.yaml", "a", encoding="utf-8") as file:
        file.write("agent_errors: error\ntools: true\nmax_turns: null\n")
    found = read_arms(first)
    assert found.name.endswith("(step 10)") or found.name.endswith("(step 0)")
    assert len(found.hashes) == 10 and set(found.settings) == {"sampled", "greedy"}
    assert found.manner == {"agent_errors": "error", "tools": "True", "max_turns": "0"}
    assert main(["--compare", str(first), str(second)]) == 0
    record = json.loads((second / "comparison.json").read_text())
    assert [one["arms"] for one in record["comparisons"]] == [["sampled", "sampled"], ["greedy", "greedy"]]
    sampled = record["comparisons"][0]
    side = record["sft"]
    assert set(side) == {"n", "passed", "ap", "at", "by_persona", "by_kind", "stops", "mean_turns", "mean_wall"}
    shared = [passes for task, passes in sampled["b"]["outcomes"].items() if task in sampled["a"]["outcomes"]]
    assert (side["n"], side["passed"]) == (len(shared), sum(map(sum, shared)))
    assert side["at"] == sum(row["n"] for row in side["by_kind"].values()) == 2 * side["n"]
    assert side["by_persona"] == {"(none)": {"n": side["n"], "p": side["passed"], "ap": side["ap"], "at": side["at"]}}
    overall = record["overall"]
    assert overall["delta_task_pp"] == pytest.approx(100 * sampled["test"]["difference"])
    assert overall["sft_assert_pct"] == pytest.approx(100 * side["ap"] / side["at"])
    assert f"stored in {second / 'comparison.json'}" in capsys.readouterr().out
    with pytest.raises(RunFolderError, match="is no run folder"):
        read_arms(tmp_path)
    assert main(["--compare", str(first)]) == 2
    assert "name two folders or more" in capsys.readouterr().err


def simulated(rng: random.Random, n: int, better: float, worse: float) -> Comparison:
    """Two policies on n tasks, of which each differs with these probabilities."""
    first: dict[str, list[bool]] = {}
    second: dict[str, list[bool]] = {}
    for i in range(n):
        draw, same = rng.random(), rng.random() < 0.5
        a, b = (False, True) if draw < better else (True, False) if draw < better + worse else (same, same)
        first[str(i)], second[str(i)] = [a], [b]
    (one,) = compare([with_passes(first), with_passes(second, "b")])
    return one


def stated_powers() -> dict[int, list[float]]:
    """Tasks to the powers that docs/verdicts.md states, by share of the tasks that differ: `SHARES`."""
    page = (REPOSITORY / "docs/verdicts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) % \| (\d+) % \| (\d+) % \| (\d+) % \|$", page, re.MULTILINE)
    return {int(n): [int(power) / 100 for power in powers] for n, *powers in rows}


def test_the_stated_powers_are_those_of_the_test() -> None:
    stated = stated_powers()
    assert len(stated) == 6
    for n, powers in stated.items():
        exact = [mcnemar_power(n, (share - 0.1) / 2, (share + 0.1) / 2) for share in SHARES]
        assert powers == pytest.approx(exact, abs=0.005)


@pytest.mark.parametrize(("runs", "tasks"), [(100, 320), pytest.param(1000, 100, marks=pytest.mark.whole)])
def test_nulls_get_no_verdict_and_a_planted_degradation_its_stated_power(runs: int, tasks: int) -> None:
    """10 points less on tasks of which 20 % differ; how often that is seen stands in docs/verdicts.md."""
    rng = random.Random(runs)
    false = sum(simulated(rng, 60, 0.1, 0.1).said in (Said.IMPROVEMENT, Said.DEGRADATION) for _ in range(runs))
    assert wilson(false, runs).low <= 0.05
    stated = stated_powers()[tasks][SHARES.index(0.2)]
    found = [simulated(rng, tasks, 0.05, 0.15).said for _ in range(runs)]
    interval = wilson(found.count(Said.DEGRADATION), runs, z=3.0)
    assert interval.low <= stated <= interval.high
    assert found.count(Said.IMPROVEMENT) == 0


def test_a_measurement_without_a_grade_leaves_no_verdict() -> None:
    a = with_passes({"x": [True]})
    nothing: Measurement = measure([], "T=1")
    (one,) = compare([a, Arms("b", {"sampled": nothing}, {})])
    assert one.said is Said.OTHER_SETTINGS and one.interval is None
