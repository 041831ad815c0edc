from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.rollout.progress import RolloutState
from tests.trainers.fake_run import FakeTiming, held_out_episodes, task
from trainers.heldout import Evaluation, PoolRate
from trainers.measure import Confirmation, Measurement
from trainers.run import console as console_module
from trainers.run.console import Plan, RunConsole
from trainers.run.device import PeakMemory
from trainers.run.summary import Clock, RunSummary, Steady, confirmation_lines, p_text, percent, summary_page

TASKS = [task(i, "held") for i in range(30)]


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=140, highlight=False, color_system=None), out


def judged(
    step: int, arms: dict[str, Measurement], best: bool, p_value: float | None = None, **more: Any
) -> Evaluation:
    return Evaluation(step, arms, {}, best, p_value, stop=False, **more)


def summary() -> RunSummary:
    clock = Clock(learn=2.0, held_out=1.0, steps=10)
    clock.add(FakeTiming())
    clock.steady = Steady(steps=8, seconds=20.0, model=12.0, sandbox=5.0, tokens=2400)
    return RunSummary(
        before=held_out_episodes(TASKS, 0, 10, 0)[1],
        after=held_out_episodes(TASKS, 8, 10, 0)[1],
        best_step=8,
        last_step=10,
        wall_seconds=12.0,
        clock=clock,
        seed=0,
        config_sha256="00",
        best_metric="sampled_pass_rate",
        warnings=["collapse: the policy [bold]never[/] stops"],
        memory=PeakMemory("a GPU", 2**31, 3 * 2**30, 2**32),
    )


def test_plain_lines_without_a_terminal() -> None:
    target, out = console(False)
    with RunConsole(100, console=target) as shown:
        for step in range(1, 101):
            shown.step(step, {"reward": 0.25, "env/pass_rate": 0.5, "env/mean_turns": 3.0})
    lines = [line for line in out.getvalue().splitlines() if line.startswith("step ")]
    assert lines[0].startswith("step 1/100  reward 0.250  pass 50 %")
    assert "0 excluded" in lines[0]
    assert lines[-1].startswith("step 100/100")
    assert 15 <= len(lines) <= 25
    assert "\x1b" not in out.getvalue()


def test_one_bar_on_a_terminal() -> None:
    target, out = console(True)
    with RunConsole(4, console=target) as shown:
        for step in range(1, 5):
            shown.step(
                step,
                {"reward": 0.25, "env/pass_rate": 0.5, "env/mean_turns": 3.0, "env/infra_error_frac": 0.125,
                 "env/pass_min": 0.4375, "env/stop/lost": 0.25, "env/broke_frac": 0.0},
            )  # fmt: skip
    text = out.getvalue()
    assert "4/4" in text and "excluded 12 %: pass 44 %  lost 25 %" in text and "broke" not in text
    assert "step 1/4" not in text


def test_a_rollout_shows_in_the_same_bar_and_leaves_it() -> None:
    target, out = console(True)
    with RunConsole(4, console=target) as shown:
        assert shown._bar is not None
        shown.playing("held-out", RolloutState(3, 8, 12, 600, 2.0))
        shown._bar.refresh()
        assert len(shown._bar.tasks) == 1
        shown.playing("held-out", RolloutState(8, 8, 30, 900, 3.0))
        assert shown._bar.tasks[0].fields["playing"] == ""
    assert "held-out: 3/8 episodes  12 turns  300 tokens/s" in out.getvalue()


def test_a_short_rollout_says_nothing_without_a_terminal() -> None:
    target, out = console(False)
    with RunConsole(4, console=target) as shown:
        shown.playing("rollout", RolloutState(3, 8, 12, 600, 2.0))
    assert out.getvalue() == ""


def test_held_out_line_has_counts_interval_and_p() -> None:
    target, out = console(False)
    shown = RunConsole(10, console=target)
    _, settings = held_out_episodes(TASKS, 10, 10, 0)
    shown.held_out(judged(0, settings, True))
    shown.held_out(judged(5, settings, True, p_value=0.00001), best_step=5)
    shown.held_out(judged(10, settings, False, p_value=0.4), best_step=5)
    shown.held_out(judged(15, settings, False))
    text = out.getvalue()
    m = settings["sampled"]
    assert "(baseline)" in text
    assert f"{m.passed}/{m.graded} = " in text and f"[{100 * m.low:.1f}, {100 * m.high:.1f}]" in text
    assert "new best; paired p against the best before: <0.0001" in text
    assert "best stays step 5; paired p against the best before: 0.4" in text and "no best yet; " in text
    assert f"\nexcluded: sampled 2: {m.passed}/30 = {100 * m.passed / 30:.1f} %\n" in text
    shown.held_out(judged(20, {"greedy": settings["greedy"]}, False))
    assert "\n0 excluded\n" in out.getvalue() and "that broke" not in out.getvalue()
    shown.held_out(judged(25, {"greedy": replace(settings["greedy"], broke={"script": 3, "command": 4})}, False))
    assert "\nfails that broke: greedy command 4, script 3\n" in out.getvalue()


def test_each_arm_has_its_own_p_and_decode_settings_and_the_pool_is_said_not_to_count() -> None:
    target, out = console(False)
    _, settings = held_out_episodes(TASKS, 10, 10, 0)
    RunConsole(10, console=target).held_out(
        judged(
            10,
            {**settings, "unseen_sampled": settings["sampled"]},
            False,
            p_value=0.65,
            p_values={"sampled": 0.65, "greedy": 0.0625, "unseen_sampled": 0.375},
            pool=PoolRate(28, 32, 6, 10, 8),
        ),
        best_step=5,
        metric="sampled_pass_rate",
    )
    rows = {line.split()[0]: line for line in out.getvalue().splitlines() if line.strip()}
    for arm, p in (("sampled", "0.65"), ("greedy", "0.062"), ("unseen_sampled", "0.38")):
        assert f"│ {p} " in rows[arm] and f"/{settings[arm.removeprefix('unseen_')].graded} = " in rows[arm]
    assert "sampled 1 x 30 tasks, T=1, max_tokens=64" in rows["decode:"] and "greedy, max_tokens=64" in rows["decode:"]
    assert "best stays step 5 by sampled_pass_rate" in rows["best"] and "0.65 (no evidence of a change)" in rows["best"]
    assert rows["pool,"] == "pool, steps 6 to 10: 28/32 = 87.5 %, 8 excluded: 28/40 = 70.0 %; not used to choose"


def test_warnings_are_shown_once_in_the_summary_and_never_parsed_as_markup() -> None:
    target, out = console(False)
    shown = RunConsole(10, console=target)
    shown.warn("collapse: [red]stops[/red] at once")
    shown.warn("collapse: [red]stops[/red] at once")
    assert shown.warnings == ["collapse: [red]stops[/red] at once"]
    assert "[red]stops[/red]" in out.getvalue()


def test_closing_summary() -> None:
    target, out = console(False)
    s = summary()
    RunConsole(10, console=target).close(s, folder=Path("runs/x"), report=Path("runs/x/report.html"))
    text = out.getvalue()
    for setting in ("sampled", "greedy"):
        for m in (s.before[setting], s.after[setting]):
            assert f"{m.passed}/{m.graded}" in text
        assert s.before[setting].sampling in text
    assert "paired p" in text and "exact McNemar" in text
    assert "chosen: step 8 of 10" in text and "runs/x/report.html" in text
    assert f"{1000 * 1.2 / 90:.2f} ms" in text and f"{1000 * 0.35 / 90:.2f} ms" in text
    assert "our overhead is 8.8 % of rollout wall, the model 70.6 %" in text
    assert "200 tokens/s of model time, 120 of wall; waiting for sandboxes 25.0 %; GPU busy not known" in text
    assert "peak memory 2.00 GiB in tensors, 3.00 GiB reserved (a GPU); estimated 4.00 GiB" in text
    assert "[bold]never[/]" in text


def test_closing_summary_without_held_out_tasks() -> None:
    target, out = console(False)
    s = summary()
    s.before, s.after, s.best_metric = {}, {}, ""
    RunConsole(10, console=target).close(s, folder=Path("runs/x"), report=None)
    assert "last step: 10 (no held-out measurement chose one" in out.getvalue()
    assert s.to_json()["held_out"] == {"best_step": 8, "best_metric": "", "last_step": 10}


def test_the_confirmation_is_the_headline() -> None:
    target, out = console(False)
    s = summary()
    s.confirmation = Confirmation("30 fresh [tasks]", 8, s.before, s.after)
    s.clock.confirm = 1.5
    RunConsole(10, console=target).close(s, folder=Path("runs/x"), report=None)
    first, sampled, greedy, _, chose, *_ = [line for line in out.getvalue().splitlines()][1:]
    assert first == "confirmed on 30 fresh [tasks], on which nothing was trained or chosen: start against step 8"
    b, a, test = s.before["sampled"], s.after["sampled"], s.test("sampled")
    interval = s.confirmation.interval("sampled")
    assert interval is not None
    assert sampled == (
        f"  sampled: {b.passed}/30 = {percent(b.pass_rate)} [{100 * b.low:.1f}, {100 * b.high:.1f}], 0 excluded -> "
        f"{a.passed}/30 = {percent(a.pass_rate)} [{100 * a.low:.1f}, {100 * a.high:.1f}], 0 excluded; decode: T=1, "
        f"max_tokens=64; difference {100 * test.difference:+.1f} points [{100 * interval.low:+.1f}, "
        f"{100 * interval.high:+.1f}], paired p {p_text(test.p_value)} (exact McNemar: {test.better} tasks better, "
        f"{test.worse} worse)"
    )
    assert greedy.startswith("  greedy: ") and chose == "what chose the step (its figures lean high):"
    assert out.getvalue().index("held-out, sampled: start and chosen step 8") > out.getvalue().index(chose)
    assert "confirmation          │     1.5 " in out.getvalue()
    record = s.to_json()["confirmation"]
    assert list(s.to_json())[0] == "confirmation" and record["why_none"] == "" and record["best_step"] == 8
    assert record["sampled"]["difference_interval"] == [interval.low, interval.high]
    assert record["sampled"]["paired_test"]["p_value"] == test.p_value
    assert record["sampled"]["decode"] == {"before": b.sampling, "after": a.sampling}
    assert s.to_json()["timing"]["confirm_seconds"] == 1.5
    assert s.clock.other(12.0) == 12.0 - s.clock.rollout - s.clock.held_out - s.clock.learn - 1.5


def test_the_summary_page_leads_with_it_and_has_no_line_break_of_a_message() -> None:
    s = summary()
    s.confirmation, s.warnings = Confirmation("30 fresh tasks", 8, s.before, s.after), ["one\n# two"]
    lines = summary_page(s).splitlines()
    assert lines[:3] == ["# Run: finished", "", f"**{confirmation_lines(s.confirmation)[0]}**"]
    assert [f"  {line[2:]}" for line in lines[4:6]] == confirmation_lines(s.confirmation)[1:]
    assert lines[7] == "## What chose the step (its figures lean high)" and lines[9].startswith("- held-out, sampled: ")
    assert lines[11:] == ["- chosen: step 8 of 10 by held-out sampled_pass_rate", "", "## Warnings", "", "- one # two"]
    s.confirmation, s.warnings, s.best_metric, s.before = Confirmation(why="confirm=0"), [], "", {}
    assert summary_page(s) == (
        "# Run: finished\n\n**confirmed: nothing (confirm=0)**\n\n"
        "## What chose the step (its figures lean high)\n\n- nothing: the last step is 10\n"
    )


def test_why_there_is_no_confirmation_is_the_headline() -> None:
    target, out = console(False)
    s = summary()
    s.confirmation = Confirmation(why="confirm=0")
    RunConsole(10, console=target).close(s, folder=Path("runs/x"), report=None)
    assert "\nconfirmed: nothing (confirm=0)\n" in out.getvalue()
    assert s.to_json()["confirmation"] == {"tasks": "", "why_none": "confirm=0", "best_step": None}
    lost = replace(s.after["sampled"], outcomes={}, sampling="T=0.5")
    both = Confirmation("2 tasks", 8, {"sampled": s.before["sampled"]}, {"sampled": lost})
    line = confirmation_lines(both)[1]
    assert line.endswith("decode: T=1, max_tokens=64, then T=0.5; no task was graded in both")


PLAN = Plan(step_episodes=32, eval_steps=5, held_out_episodes=640, baseline=True, confirm_episodes=100)


class Watch:
    """Stands for the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def narrow(columns: int, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=columns, highlight=False, color_system=None), out


def test_the_time_left_counts_evaluations_and_the_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Watch()
    monkeypatch.setattr(console_module, "time", clock)
    with RunConsole(12, plan=PLAN, console=narrow(80, False)[0]) as shown:
        assert shown.left() == "?", "nothing was played yet"
        # 64 of 640 episodes in 1 s: the rest of this one, then 3 more (steps 5, 10, 12), 100 episodes, and 12 steps.
        assert shown.left(RolloutState(64, 640, 90, 0, 1.0)) == ">0:47"
        clock.now = 10.0
        shown.held_out(judged(0, {}, True))
        assert shown.left() == f">0:{math.ceil(30 + 100 / 64 + 12 * 0.5)}"
        for step in range(1, 6):
            clock.now += 2.0
            shown.step(step, {})
        assert shown.left() == f"0:{math.ceil(30 + 100 / 64 + 7 * 2)}", "the evaluation after this step is to come"
        shown.playing("held-out", RolloutState(320, 640, 90, 0, 5.0))
        assert shown.left(RolloutState(320, 640, 90, 0, 5.0)) == f"0:{math.ceil(25 + 100 / 64 + 7 * 2)}"
        clock.now += 10.0
        shown.held_out(judged(5, {}, True))
        assert shown.left() == f"0:{math.ceil(20 + 100 / 64 + 7 * 2)}"
        for step in range(6, 13):
            clock.now += 2.0
            shown.step(step, {})
        clock.now += 20.0
        shown.held_out(judged(10, {}, True))
        shown.held_out(judged(12, {}, True))
        assert shown.left() == "0:02"
        shown.playing("held-out", RolloutState(50, 50, 90, 0, 1.0))
        assert shown.left() == "0:01"
        shown.playing("held-out", RolloutState(50, 50, 90, 0, 1.0))
        assert shown.left() == "0:00"


def test_what_follows_an_evaluation() -> None:
    assert [PLAN.evaluations(after, 12) for after in (-1, 0, 5, 10, 12)] == [4, 3, 2, 1, 0]
    assert [PLAN.evaluations(after, 10) for after in (-1, 0, 5, 10)] == [3, 2, 1, 0]
    assert Plan().evaluations(-1, 10) == 0


def test_without_held_out_tasks_only_steps_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Watch()
    monkeypatch.setattr(console_module, "time", clock)
    target, out = narrow(80, False)
    with RunConsole(3000, first_step=10, console=target) as shown:
        clock.now = 3.0
        shown.step(11, {})
    assert shown.left() == "2:29:27" and "step 11/3000  reward" in out.getvalue() and "left 2:29:27\n" in out.getvalue()


def test_step_bar_and_time_left_are_whole_at_80_columns() -> None:
    target, out = narrow(80, True)
    with RunConsole(1000, plan=PLAN, console=target) as shown:
        shown.playing("held-out", RolloutState(1, 640, 4, 60000, 20.0))
        shown.step(700, {"reward": 0.25, "env/pass_rate": 0.5, "env/mean_turns": 3.0, "env/infra_error_frac": 0.125})
        shown.playing("rollout", RolloutState(3, 32, 1200, 600000, 2.0))
        shown._bar.refresh()
        left = shown.left()
    lines = [line.split("\r")[-1] for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).splitlines()]
    last = [line for line in lines if line.startswith("train ")][-1]
    assert re.match(rf"train \S+ +700/1000 left {left} +reward 0.250", last) and len(last) <= 80 and "…" in last, last


def test_tables_in_a_pipe_are_120_wide_and_lines_are_whole() -> None:
    target, out = narrow(80, False)
    shown = RunConsole(10, console=target)
    shown.note("word " * 60)
    shown.close(summary(), folder=Path("runs/x"), report=None)
    assert target.width == 120 and "word " * 59 in out.getvalue()
    rows = [line for line in out.getvalue().splitlines() if line.startswith("stop mix")]
    assert rows and all("submitted" in row and "max_turns" in row for row in rows)
