"""A run folder as a real run leaves it, made from a seed: tests of reader, report and console read it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from agents.policy import Candidate, FinishReason
from agents.rollout import RolloutResult
from agents.rollout.progress import Timing
from agents.trajectory import Trajectory, Turn
from tasks.splits import Split
from tasks.task import Task
from trainers.guards import Finding, Severity, Watch
from trainers.heldout import Evaluation
from trainers.measure import Measurement, measure
from trainers.run.device import PeakMemory
from trainers.run.record import RunRecord
from trainers.run.summary import Clock, RunSummary

FAMILIES = ("append", "copy", "move", "replace", "count", "tree")
KINDS = ("file_exists", "file_contains", "file_not_exists", "file_unchanged")
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202eevil\u202c\x00\ud800"


@dataclass(frozen=True)
class FakeTiming:
    wall_seconds: float = 1.7
    model_seconds: float = 1.2
    sandbox_seconds: float = 0.35
    turns: int = 90
    sampled_tokens: int = 1600


def task(number: int, split: str) -> Task:
    family = FAMILIES[number % len(FAMILIES)]
    return Task.model_validate(
        {
            "id": f"{family}-{split}-{number:04d}",
            "family": family,
            "intent": f"Append the line 'report {number}' to notes.txt, then stop.",
            "workspace": {"files": {"notes.txt": "start\n"}},
            "assertions": [{"kind": "file_contains", "path": "notes.txt", "contains": f"report {number}"}],
        }
    )


def episode(
    job: Task,
    rng: random.Random,
    skill: float,
    *,
    label: str = "T=1, max_tokens=64",
    broken: bool = False,
    text: str = "",
    tokens: int = 3,
) -> Trajectory:
    passed = rng.random() < skill
    submitted = rng.random() < 0.55 + 0.4 * skill
    n = rng.choice([2, 2, 3]) if submitted else 8
    turns = []
    for i in range(n):
        last = i == n - 1 and submitted
        target = "notes.txt" if passed else "note.txt"
        reply = "TASK_COMPLETE" if last else f"```bash\necho 'report' >> {target}\n```{text}"
        turns.append(
            Turn(
                index=i,
                context_ids=[5, 6] if i else [],
                ids=[7 + i % 3 for i in range(tokens)],
                logprobs=[-0.1 - i % 3 / 10 for i in range(tokens)],
                entropies=[0.5 - i % 3 / 10 for i in range(tokens)],
                forced=[False] * tokens,
                finish=FinishReason.STOP,
                reply=reply,
                action="submit" if last else "command",
                command=None if last else f"echo 'report' >> {target}",
                observation="" if last else f"ok{text}",
                exit_code=None if last else 0,
                signal=None if last else (0.5 if passed and i == 0 else 0.0),
                anchor=f"{job.id}:{i}",
                candidates=[Candidate((7, 8), 0.4)] if i and rng.random() < 0.2 else [],
            )
        )
    result = Trajectory(
        task_id=job.id,
        task_hash=job.content_hash,
        attempt=0,
        seed=rng.randrange(2**31),
        prompt_ids=[1, 2, 3],
        turns=turns,
        family=job.family,
        sampling=label,
    )
    if broken:
        result.stop_reason, result.error = "infrastructure", "SandboxError: the supervisor died"
        return result
    result.stop_reason = "submitted" if submitted else "max_turns"
    result.passed = passed
    kinds = rng.sample(KINDS, 2)
    verdicts = ["pass", "pass"] if passed else rng.choice([["fail", "pass"], ["fail", "fail"], ["pass", "fail"]])
    result.assertions = [
        {
            "name": f"{kind}:notes.txt{text}",
            "kind": kind,
            "verdict": verdict,
            "score": float(verdict == "pass"),
            "detail": "" if verdict == "pass" else f"notes.txt does not contain 'report'{text}",
        }
        for kind, verdict in zip(kinds, verdicts, strict=True)
    ]
    result.rate = sum(a["score"] for a in result.assertions) / 2
    result.reward = result.rate - 0.2 * n / 8
    return result


def skill_at(step: int, steps: int, greedy: bool = False) -> float:
    progress = min(1.0, step / (0.8 * steps))
    low, high = (0.45, 0.88) if greedy else (0.5, 0.78)
    drop = 0.05 if step == steps else 0.0
    return low + (high - low) * progress**0.7 - drop


def held_out_episodes(
    tasks: list[Task], step: int, steps: int, seed: int, *, text: str = "", tokens: int = 3
) -> tuple[dict[str, list[Trajectory]], dict[str, Measurement]]:
    episodes = {
        name: [
            episode(
                job,
                random.Random(f"{seed}:{step}:{name}:{i}"),
                skill_at(step, steps, name == "greedy"),
                label="greedy, max_tokens=64" if name == "greedy" else "T=1, max_tokens=64",
                broken=name == "sampled" and step == steps and i < 2,
                text=text,
                tokens=tokens,
            )
            for i, job in enumerate(tasks)
        ]
        for name in ("sampled", "greedy")
    }
    return episodes, {name: measure(items, items[0].sampling) for name, items in episodes.items()}


def make_run(
    folder: Path, *, steps: int = 40, n_held_out: int = 60, seed: int = 0, text: str = "", tokens: int = 3
) -> Path:
    """Write a whole run; `text` is put wherever a policy or a sandbox could put text, and a reply has `tokens`."""
    rng = random.Random(seed)
    pool = [task(i, "pool") for i in range(24)]
    held = [task(1000 + i, "held") for i in range(n_held_out)]
    record = RunRecord(folder)
    record.write_config({"model_name_or_path": "quickstart", "seed": seed, "temperature": 1.0, "max_steps": steps})
    record.write_environment(images={}, sandbox="bubblewrap", prompt_style="compact")
    record.write_tasks(Split(tuple(pool), tuple(held)))
    clock, watch = Clock(), Watch()
    history: list[tuple[int, dict[str, Measurement]]] = []
    best_step, best_rate = 0, -1.0
    for step in range(steps + 1):
        if step:
            jobs = rng.sample(pool, 4)
            skill = skill_at(step, steps)
            episodes = [episode(job, rng, skill, text=text, tokens=tokens) for job in jobs for _ in range(4)]
            for place, one in enumerate(episodes):
                one.attempt = place % 4
            timing = FakeTiming()
            clock.add(timing)
            clock.learn += 1.1
            clock.steps += 1
            clock.steady.steps += 1
            clock.steady.seconds += 3.0
            clock.steady.model += timing.model_seconds
            clock.steady.tokens += timing.sampled_tokens
            clock.steady.busy += 0.4
            clock.steady.looks += 1
            record.write_episodes(step, episodes, keep=step in (1, steps))
            metrics = _metrics(step, steps, episodes, rng)
            record.log(step, metrics)
            watch.episodes(step, RolloutResult(episodes, Timing()))
            watch.step(step, metrics)
            record.write_gauges(step, watch.gauges(metrics))
        if step % 10 == 0:
            clock.held_out += 4.0
            played, settings = held_out_episodes(held, step, steps, seed, text=text, tokens=tokens)
            rate = settings["sampled"].pass_rate
            assert rate is not None
            best = rate > best_rate
            if best:
                best_step, best_rate = step, rate
            history.append((step, settings))
            evaluation = Evaluation(step, settings, {}, best, None if step == 0 else 0.01, stop=False)
            record.write_held_out(evaluation, played)
    warning = "collapse: mean turns fell to 1.1 and pass fell with it: the policy submits at once" + text
    record.warn(steps, warning)
    record.write_finding(
        Finding(steps // 2, "signal_meter", Severity.NOTE, "little signal: `agents show` tells" + text)
    )
    summary = RunSummary(
        before=history[0][1],
        after=dict(history)[best_step],
        best_step=best_step,
        last_step=steps,
        wall_seconds=150.0,
        clock=clock,
        seed=seed,
        config_sha256="ab" * 32,
        best_metric="sampled_pass_rate",
        warnings=[warning],
        memory=PeakMemory("a GPU", 3 * 2**30, 4 * 2**30, 5 * 2**30),
    )
    record.write_summary(summary)
    return folder


def _metrics(step: int, steps: int, episodes: list[Trajectory], rng: random.Random) -> dict[str, float]:
    m = measure(episodes, "T=1, max_tokens=64")
    assert m.reward is not None and m.pass_rate is not None and m.assertion_rate is not None
    assert m.mean_turns is not None and m.submitted is not None
    return {
        "reward": m.reward,
        "loss": rng.gauss(0, 0.02),
        "grad_norm": 0.4 + 0.3 * rng.random(),
        "learning_rate": 3e-4,
        "env/pass_rate": m.pass_rate,
        "env/assertion_rate": m.assertion_rate,
        "env/mean_turns": m.mean_turns,
        "env/submitted": m.submitted,
        **{f"env/stop/{reason}": count / m.n for reason, count in m.stops.items()},
        "sampling/entropy": 0.6 - 0.4 * step / steps + 0.02 * rng.random(),
        "t2po/resampled_turn_frac": 0.1 + 0.08 * rng.random(),
        "t2po/forced_token_frac": 0.0,
        "gigpo/frac_zero_adv": 0.2 + 0.4 * step / steps,
        "gigpo/grouped_turn_frac": 0.6 + 0.05 * rng.random(),
        "time/rollout_seconds": 1.7,
    }
