"""A campaign folder as its runs leave it, from passes that a test says: no run is played."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.trainers.stub_run import measured
from trainers.campaigns.plan import Campaign, Manifest, RunEntry, load_campaign, run_folder
from trainers.run.summary import Stopped

GRADED = 200
EVERY = 10
"""Steps between two held-out measurements, of which the first is at step 0."""


def make_campaign(
    folder: Path,
    passes: Mapping[str, Sequence[Sequence[int]]],
    *,
    ended: Mapping[tuple[str, int], Stopped] | None = None,
    top: str = "",
) -> Campaign:
    """Write the file and the folder.

    Args:
        folder: Where `campaign.toml` and `out` come.
        passes: Of each condition and seed, the passes of each held-out measurement, of `GRADED`.
        ended: Runs that ended otherwise than planned: without their last measurement and without later steps.
        top: Lines for the top of the file.
    """
    ended, seeds = ended or {}, range(max(map(len, passes.values())))
    steps = EVERY * (max(len(run) for runs in passes.values() for run in runs) - 1)
    conditions = "".join(f"[conditions.{name}]\nturn_gamma = 0.{90 + n}\n" for n, name in enumerate(passes))
    path, out = folder / "campaign.toml", folder / "out"
    head = (
        f'name = "planted"\nconfig = "quickstart"\noutput_dir = "{out}"\nseeds = {list(seeds)}\nmax_steps = {steps}\n'
    )
    path.write_text(top + head + conditions)
    campaign = load_campaign(str(path))
    settings = {name: {"max_steps": steps, "temperature": 1.0, "max_turn_tokens": 64} for name in passes}
    manifest = Manifest("planted", settings, {name: campaign.given(name) for name in passes})
    for condition, seed in campaign.names():
        end = ended.get((condition, seed), Stopped.FINISHED)
        run = RunEntry(condition, seed, run_folder(condition, seed), f"{condition}{seed}", end)
        manifest.runs[condition, seed] = run
        _write_run(out / run.folder, run, passes[condition][seed], end)
    manifest.write(out)
    return campaign


def _write_run(place: Path, run: RunEntry, passes: Sequence[int], end: Stopped) -> None:
    place.mkdir(parents=True)
    points = [
        {"step": EVERY * n, "settings": {"sampled": measured(count, GRADED)}, "best": count >= max(passes[: n + 1])}
        for n, count in enumerate(passes)
    ]
    points = points if end is Stopped.FINISHED else points[:-1]
    last = EVERY * (len(points) - 1)
    steps = [
        {"step": n, "reward": 0.3 + n / 100, "env/pass_rate": 0.4 + n / 200, "env/mean_turns": 3 - (n + run.seed) / 40}
        for n in range(1, last + 1)
    ]
    if run.condition == "better":
        steps = [{**step, "gigpo/tied_pair_frac": 0.25} for step in steps]
    for name, lines in (("held_out.jsonl", points), ("metrics.jsonl", steps)):
        (place / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("tasks.lock", "config.yaml", "report.html"):
        (place / name).write_text("temperature: 1.0\n")
    (place / "environment.json").write_text(json.dumps({"machine": "two cores"}))
    summary = {"config_sha256": run.config_sha256, "stopped": end, "wall_seconds": 400.0 + run.seed}
    summary |= {"timing": None if end is Stopped.FAILED else {"sampled_tokens": 120_000 + 1000 * run.seed}}
    (place / "summary.json").write_text(json.dumps(summary))
