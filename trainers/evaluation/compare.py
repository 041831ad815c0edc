"""Two evaluations on the same tasks: paired, with the decode settings of both, or a clear word where that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from trainers.errors import RunFolderError
from trainers.evaluation.folder import FILE
from trainers.measure import Measurement
from trainers.reporting.folder import read_mapping, read_run
from trainers.run.record import CONFIG, ENVIRONMENT, TASKS
from trainers.run.summary import measurement_table, p_text
from trainers.stats import Outcomes, fisher_exact, paired_test, tasks_needed


@dataclass(frozen=True, slots=True)
class Arms:
    """Measurements of one folder.

    Attributes:
        name: For tables.
        settings: By decode setting.
        hashes: Content hash of each task measured on.
        prompts: Style and hash of the prompts; empty where the folder is older than that record.
        agent_errors: What counted where the agent kept itself from being judged; empty likewise.
    """

    name: str
    settings: dict[str, Measurement]
    hashes: dict[str, str]
    prompts: str = ""
    agent_errors: str = ""


def read_arms(path: str | Path) -> Arms:
    """Measurements of an evaluation folder, or of a run folder's chosen step.

    Raises:
        RunFolderError: It is neither, or it is damaged.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunFolderError(f"no such folder: {path} (an evaluation folder or a run folder is needed)")
    if (folder / FILE).exists():
        record = read_mapping(folder / FILE)
        try:
            settings = {name: Measurement.from_json(m) for name, m in record["arms"].items()}
            if not settings:
                raise RunFolderError(f"{path}: nothing is measured yet: go on with it (--output_dir {path} --resume)")
            return Arms(str(path), settings, dict(record["tasks"]), _prompts(folder), _agent_errors(folder))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{folder / FILE}: not an evaluation ({error})") from error
    run = read_run(folder)
    if run.best is None:
        raise RunFolderError(f"{path} holds no held-out evaluation to compare")
    lock = read_mapping(folder / TASKS)
    measured = {**lock.get("held_out", {}), **lock.get("unseen", {})}
    name = f"{path} (step {run.best.step})"
    return Arms(name, run.best.settings, measured, _prompts(folder), _agent_errors(folder))


def compare_arms(first: Arms, second: Arms) -> Iterator[Table | str]:
    """Tables and lines for a person: each shared decode setting, or the only one of each.

    Raises:
        RunFolderError: The folders share no decode setting and have several.
    """
    pairs = [(name, name) for name in first.settings if name in second.settings]
    if not pairs:
        if len(first.settings) != 1 or len(second.settings) != 1:
            raise RunFolderError(
                f"no decode setting in common: {first.name} has {', '.join(first.settings)}, "
                f"{second.name} has {', '.join(second.settings)}"
            )
        pairs = [(next(iter(first.settings)), next(iter(second.settings)))]
    if first.prompts and second.prompts and first.prompts != second.prompts:
        yield f"[yellow]the prompts differ:[/] A {first.prompts}; B {second.prompts}"
    if first.agent_errors and second.agent_errors and first.agent_errors != second.agent_errors:
        yield f"[yellow]agent_errors differs:[/] A {first.agent_errors}; B {second.agent_errors}"
    changed = {t for t, h in first.hashes.items() if second.hashes.get(t, h) != h}
    for a_name, b_name in pairs:
        yield from _pair(first, second, first.settings[a_name], second.settings[b_name], a_name, b_name, changed)


def _pair(
    first: Arms, second: Arms, a: Measurement, b: Measurement, a_name: str, b_name: str, changed: set[str]
) -> Iterator[Table | str]:
    title = a_name if a_name == b_name else f"{a_name} against {b_name}"
    yield measurement_table(title, {f"A  {first.name}": a, f"B  {second.name}": b})
    if a.sampling != b.sampling:
        yield f"[yellow]the decode settings differ:[/] A {a.sampling}; B {b.sampling}"
    if changed:
        yield f"{len(changed)} tasks have the same id and other content in A and B: they are left out"
    test = paired_test(_without(a.outcomes, changed), _without(b.outcomes, changed))
    if not test.tasks:
        p = fisher_exact(a.passed, a.graded, b.passed, b.graded)
        yield f"no task in common: unpaired p {p_text(p)} (Fisher's exact test, attempts taken as independent)\n"
        return
    yield (
        f"B minus A: {100 * test.difference:+.1f} points on {test.tasks} shared tasks; paired p {p_text(test.p_value)} "
        f"({test.test}: {test.better} tasks better, {test.worse} worse, {test.tasks - test.better - test.worse} equal)"
    )
    if test.unpaired:
        yield f"{test.unpaired} tasks have a graded attempt on one side only and are not in the test"
    if test.p_value > 0.05 and test.difference and a.pass_rate is not None and b.pass_rate is not None:
        needed = tasks_needed(a.pass_rate, b.pass_rate)
        if needed:
            yield f"not significant at 5 %: unpaired, such a difference needs about {needed} tasks per side"
    yield ""


def _without(outcomes: dict[str, list[bool]], tasks: set[str]) -> Outcomes:
    return {task: passes for task, passes in outcomes.items() if task not in tasks}


def _prompts(folder: Path) -> str:
    record = read_mapping(folder / ENVIRONMENT)
    return f"{record['prompt_style']} ({record['prompt_hash']})" if record.get("prompt_hash") else ""


def _agent_errors(folder: Path) -> str:
    return str(read_mapping(folder / CONFIG).get("agent_errors", ""))
