from __future__ import annotations

import json
import random

import pytest

from tests.trainers.fake_run import episode, task
from trainers.measure import Measurement, TaskCounts, measure, task_counts
from trainers.run.summary import apart, passes
from trainers.stats import wilson


def episodes(passes: list[bool], broken: int = 0) -> list:
    rng = random.Random(0)
    jobs = [task(i, "held") for i in range(len(passes) + broken)]
    good = [episode(job, rng, float(p)) for job, p in zip(jobs, passes, strict=False)]
    return good + [episode(job, rng, 1.0, broken=True) for job in jobs[len(passes) :]]


def test_figures_by_hand() -> None:
    played = episodes([True, True, False, True])
    m = measure(played, "T=1")
    assert (m.n, m.tasks, m.graded, m.infrastructure, m.passed, m.pass_rate) == (4, 4, 4, 0, 3, 0.75)
    interval = wilson(3, 4)
    assert (m.low, m.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert (m.pass_min, m.pass_max) == (0.75, 0.75)
    assert m.reward == pytest.approx(sum(t.reward for t in played) / 4)
    assert m.mean_turns == pytest.approx(sum(len(t.turns) for t in played) / 4)
    assert sum(m.stops.values()) == 4
    assert sum(n for _, n in m.families.values()) == 4
    assert sum(n for _, n in m.kinds.values()) == 8
    assert m.outcomes[played[2].task_id] == [False]


def test_infrastructure_is_counted_and_enters_no_mean() -> None:
    clean, dirty = measure(episodes([True, False]), "T=1"), measure(episodes([True, False], broken=2), "T=1")
    for figure in ("pass_rate", "reward", "assertion_rate", "mean_turns", "submitted", "low", "high", "kinds"):
        assert getattr(dirty, figure) == getattr(clean, figure), figure
    assert (dirty.n, dirty.graded, dirty.infrastructure) == (4, 2, 2)
    assert (dirty.pass_min, dirty.pass_max) == (0.25, 0.75)
    assert dirty.stops["infrastructure"] == 2
    assert dirty.errors == {"SandboxError: the supervisor died": 2}
    assert len(dirty.outcomes) == 2


def test_attempts_by_task() -> None:
    first, second, other = episodes([True, False, False])
    second.task_id, second.assertions = (
        first.task_id,
        [{"name": "a", "verdict": "fail"}, {"name": "b", "verdict": "pass"}],
    )
    other.assertions = [{"name": "c", "verdict": "error"}]
    (lost,) = episodes([], broken=1)
    lost.task_id, lost.assertions = first.task_id, [{"name": "a", "verdict": "fail"}]
    counts = task_counts([first, other, second, lost])
    assert counts == {first.task_id: TaskCounts(3, 2, 1, {"a": 1}), other.task_id: TaskCounts(1, 1, 0)}


def test_nothing_graded_is_none_never_zero() -> None:
    m = measure(episodes([], broken=3), "greedy")
    assert m.infrastructure == 3
    for figure in ("pass_rate", "low", "high", "reward", "assertion_rate", "mean_turns", "submitted"):
        assert getattr(m, figure) is None
    assert (m.pass_min, m.pass_max) == (0.0, 1.0)
    assert measure([], "greedy").pass_min is None


def test_interval_of_several_attempts_is_by_task() -> None:
    rng = random.Random(0)
    jobs = [task(i, "held") for i in range(8)]
    played = [episode(job, rng, float(i > 0)) for i, job in enumerate(jobs) for _ in range(4)]
    m = measure(played, "T=1")
    assert (m.n, m.tasks, m.passed) == (32, 8, 28)
    assert m.effective_n == pytest.approx(8)
    naive = wilson(28, 32)
    assert m.low is not None and m.high is not None
    assert m.high - m.low > 1.5 * (naive.high - naive.low)


def test_what_the_agent_broke_is_counted_apart() -> None:
    played = episodes([False, False, True], broken=2)
    played[0].assertions[0]["broke"] = True
    kind = played[0].assertions[0]["kind"]
    played[1].stop_reason = "lost"
    played[1].assertions = [{**record, "broke": True} for record in played[1].assertions]
    for one, commands in ((played[1], ["rm x"]), (played[2], ["", ""]), (played[3], ["ls"])):
        one.notes["losses"] = [{"turn": 1, "command": c, "end": "replayed", "error": ""} for c in commands]
    played[4].error = "GradeError: task 'x' could not be graded"
    m = measure(played, "T=1")
    assert m.broke == {kind: 1} and m.lost == 1 and m.excluded == {"SandboxError": 1, "GradeError": 1}
    ids = [episode.task_id for episode in played]
    assert m.losses == {ids[1]: {"rm x": 1}, ids[2]: {"": 2}, ids[3]: {"ls": 1}}
    assert passes(m).startswith("1/3 = 33.3 % [") and passes(m).endswith("], 2 excluded: 1/5 = 20.0 %")
    assert passes(measure(played[:3], "T=1")).endswith("], 0 excluded")


def test_records_of_earlier_releases_are_read() -> None:
    m = measure(episodes([True, False], broken=1), "T=1")
    record = m.to_json()
    del record["broke"], record["losses"]
    assert Measurement.from_json(record) == m


def test_json_round_trip_and_unknown_keys() -> None:
    m = measure(episodes([True, False], broken=1), "T=1")
    record = json.loads(json.dumps(m.to_json()))
    assert Measurement.from_json(record) == m
    with pytest.raises(ValueError, match=r"unknown keys \['extra'\], missing keys \['passed'\]"):
        Measurement.from_json({**{k: v for k, v in record.items() if k != "passed"}, "extra": 1})


def test_what_judges_say_that_load_the_agents_code_is_in_no_figure() -> None:
    played = episodes([True, False, True, True], broken=1)
    ids = {played[2].task_id, played[3].task_id, played[4].task_id}
    m = measure(played, "T=1", ids)
    alone = measure(played[:2], "T=1")
    assert m.in_process == [2, 2] and alone.in_process == []
    assert {**m.to_json(), "in_process": []} == alone.to_json()
    assert passes(m) == passes(alone) and passes(measure(played[2:], "T=1", ids)) == "nothing graded of 0, 0 excluded"
    assert (apart(m), apart(alone)) == ("2 of 2 passed, not counted", "-")
    assert Measurement.from_json(m.to_json()) == m
    old = {key: value for key, value in alone.to_json().items() if key != "in_process"}
    assert Measurement.from_json(old) == alone
