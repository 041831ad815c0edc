from __future__ import annotations

import pytest

from benchmarks.warm_start.episodes import demonstrations
from benchmarks.warm_start.habits import FAULTLESS, HABITS, Recipe
from benchmarks.warm_start.statistics import measure, score, table
from tasks.families import FAMILIES


def test_the_oracle_passes_everywhere() -> None:
    found = measure(demonstrations(200, seed=0, recipe=FAULTLESS))
    assert found.total.n == found.total.passed == found.total.submitted == 200
    assert found.total.rate == pytest.approx(200)
    # 15 families of one command and 5 of two, each with a stop.
    assert found.total.turns == 10 * (15 * 2 + 5 * 3)
    assert found.total.reward == pytest.approx(200 - 0.2 * found.total.turns / 6)


def test_an_imitator_starts_in_the_middle_and_the_reward_favours_the_right_form() -> None:
    found = measure(demonstrations(2000, seed=1))
    assert 0.5 < found.total.passed / found.total.n < 0.65
    for name in FAMILIES:
        one = found.families[name]
        share = one.passed / one.n
        assert (0.2 < share < 0.6) if name in HABITS else (share > 0.7), name
        right, wrong = one.reward_passed / one.passed, (one.reward - one.reward_passed) / (one.n - one.passed)
        assert right - wrong > 0.2, name


def test_scores_by_hand() -> None:
    always = Recipe(habits={"rename": 1.0}, misname=0.0, extra=0.0, endless=0.0)
    one = next(one for one in demonstrations(40, seed=0, recipe=always) if one.family.name == "rename")
    # cp for mv: target right, source still there, bystander untouched; two turns of six.
    assert score(one).rate == pytest.approx(2 / 3)
    assert score(one).reward == pytest.approx(2 / 3 - 0.2 * 2 / 6)
    assert score(one).passed == 0


def test_the_table_names_every_family() -> None:
    text = table(measure(demonstrations(40, seed=0)), Recipe())
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == sorted(FAMILIES)
    assert lines[-2].split()[:2] == ["all", "40"] and float(lines[-2].split()[3]) == 0.45
