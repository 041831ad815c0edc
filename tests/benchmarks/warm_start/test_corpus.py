"""No demonstration shows a task that is measured on."""

from __future__ import annotations

import pytest

from benchmarks.warm_start import Recipe, demonstrations, problem_key
from benchmarks.warm_start.corpus import MEASURED, demonstration_messages, measured_keys
from tasks.families import MIX, generate


def key(task):
    files = {path: entry.content.decode() for path, entry in task.files().items() if entry.kind == "file"}
    return problem_key(task.intent, files)


@pytest.mark.parametrize("seed", [seed for seed, _ in MEASURED])
def test_every_measured_task_is_known(seed):
    assert {key(task) for task in generate(MIX, 320, seed)} <= measured_keys()


def test_the_shipped_defaults_are_among_them():
    from trainers.evaluation.arguments import DEFAULT_TASKS
    from trainers.settings.parsing import parse

    held_out = parse(["--use_cpu", "true"]).env.held_out
    sources = {f"generated:{MIX}?n=320&seed={seed}" for seed, _ in MEASURED}
    assert {held_out, DEFAULT_TASKS} <= sources


def test_an_excluded_task_is_not_demonstrated():
    shown = [d.task_id for d in demonstrations(50, 3, Recipe())]
    banned = shown[7].split(":")[1]
    again = [d.task_id for d in demonstrations(50, 3, Recipe(), exclude={banned})]
    assert shown[7] in shown and shown[7] not in again
    assert len(list(demonstration_messages(5, 0, Recipe()))) == 5
