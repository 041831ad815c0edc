from __future__ import annotations

import random
from pathlib import Path

from tests.trainers.fake_run import HOSTILE, episode, task
from trainers.evaluation.several import settings_that_differ, several
from trainers.measure import Measurement, measure
from trainers.reporting.folder import HeldOutPoint, RunFolder

TASKS = [task(i, "held") for i in range(60)]


def measured(skill: float, label: str = "T=1, max_tokens=64", first: int = 0) -> Measurement:
    rng = random.Random(round(100 * skill))
    return measure([episode(job, rng, skill) for job in TASKS[first:]], label)


def run(name: str, settings: dict[str, Measurement], **config: object) -> RunFolder:
    points = [HeldOutPoint(8, settings, True)] if settings else []
    return RunFolder(Path("none") / name, name, held_out=points, config={"output_dir": name, **config})


def test_settings_that_differ_are_named_with_both_values() -> None:
    runs = [run("a", {}, seed=0, kl=0.1, same=1), run("b", {}, seed=1, same=1)]
    assert settings_that_differ(runs) == [("setting", "a", "b"), ("seed", "0", "1"), ("kl", "0.1", "-")]
    assert settings_that_differ([runs[0], runs[0]]) == []
    (_, row) = settings_that_differ([runs[0], run("c", {}, seed=0, kl=0.1, same=HOSTILE)])
    assert "\x1b" not in row[2] and "<U+001B>" in row[2]


def test_a_planted_degradation_and_no_difference_with_all_that_they_rest_on() -> None:
    same, worse = measured(0.85), measured(0.2)
    both = {"sampled": same, "greedy": measured(0.9, "greedy")}
    found = several([run("a", both), run("b", {**both, "sampled": worse}), run("c", both)])
    assert found.first == "a" and found.notes == []
    assert [(v.head.split(":")[0], v.tone) for v in found.verdicts] == [
        ("b, sampled", "bad"), ("b, greedy", ""), ("c, sampled", ""), ("c, greedy", ""),
    ]  # fmt: skip
    head, lines = found.verdicts[0].head, found.verdicts[0].lines
    assert "degradation: B minus A is -" in head and "would have shown" in found.verdicts[2].head
    assert lines[0].startswith(f"A, a: {same.passed}/60 = ") and lines[0].endswith("decode T=1, max_tokens=64")
    assert lines[1].startswith(f"B, b: {worse.passed}/60 = ") and "on 60 shared tasks; paired p <0.0001" in lines[2]
    assert [row[:2] for row in found.table[1:]] == [
        ("b", "sampled"),
        ("b", "greedy"),
        ("c", "sampled"),
        ("c", "greedy"),
    ]
    assert found.differences is not None and found.differences.svg.count("<circle") == 4


def test_other_decode_settings_and_other_tasks_get_no_verdict() -> None:
    a = run("a", {"sampled": measured(0.9)})
    (other,) = several([a, run("b", {"sampled": measured(0.2, "T=0.6, max_tokens=64")})]).verdicts
    assert "different settings" in other.head and other.tone == ""
    few = several([a, run("b", {"sampled": measured(0.9, first=59)})])
    assert few.table == [] and "on 1 shared tasks" in few.verdicts[0].lines[2]


def test_what_cannot_be_compared_is_said_and_the_page_stands() -> None:
    a = run("a", {"sampled": measured(0.9)})
    found = several([run("none", {}), a, run("b", {"sampled": measured(0.9)})])
    assert found.first == "a" and found.notes == ["none holds no held-out evaluation to compare"]
    assert len(found.verdicts) == 1
    apart = several([run("x", {"one": measured(0.9), "two": measured(0.9)}), a])
    assert apart.verdicts == [] and "no decode setting in common" in apart.notes[0]
    assert several([run("none", {}), a]).verdicts == []
