"""The manual's page on credit names every setting, and its example works."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.shared_data import REPOSITORY
from tests.trainers.credit.fixtures import one_row
from trainers.credit import CreditSettings, EpisodeOperator, TurnGrouping, TurnSignal
from trainers.credit.token import OPERATORS, token_weights

PAGE = (REPOSITORY / "docs/credit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(CreditSettings)])
def test_every_setting_is_explained(name):
    assert re.search(rf"\b{name}\b", PAGE)


def test_every_operator_is_in_a_table():
    for name in [*OPERATORS, *EpisodeOperator, *TurnGrouping, *TurnSignal]:
        assert re.search(rf"^\| `{name}`", PAGE, re.M), name


def test_the_example_is_an_operator():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    before = dict(OPERATORS)
    try:
        exec(example, {})
        weights = token_weights(["first_half"], one_row([1.0, 2.0, 3.0, 4.0]))
    finally:
        OPERATORS.clear()
        OPERATORS.update(before)
    assert weights.tolist() == [[1.0, 1.0, 0.0, 0.0]]
