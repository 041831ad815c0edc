"""One real quickstart run, small, whose events every guard is shown."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandboxes import probe
from trainers import grpo
from trainers.guards import GUARDS, Finding, GuardName, Watch

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
FLAGS = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=40&seed=5", "--held_out", "generated:quickstart?n=8&seed=6",
    "--per_device_train_batch_size", "8", "--max_steps", "7", "--eval_steps", "4", "--save_steps", "7", "--slots", "8",
    "--held_out_greedy", "false",
]  # fmt: skip


@dataclass
class Recorded:
    """Events of a run, in order, as (method of `Watch`, arguments)."""

    folder: Path
    code: int = -1
    events: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def shown_to(self, name: GuardName) -> list[Finding]:
        """What one guard finds in them."""
        watch = Watch({name: None})
        for method, arguments in self.events:
            getattr(watch, method)(*arguments)
        assert [type(guard) for guard in watch.guards] == list(GUARDS[name])
        return watch.findings

    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture(scope="session")
def healthy(tmp_path_factory) -> Recorded:
    """`python -m trainers.grpo`, seven steps of the quickstart policy in a real sandbox."""
    if SANDBOX is None:
        pytest.skip("no sandbox backend works on this machine")
    recorded = Recorded(tmp_path_factory.mktemp("healthy") / "run")

    class Noting(Watch):
        def begin(self, *arguments):
            recorded.events.append(("begin", arguments))
            return super().begin(*arguments)

        def episodes(self, *arguments):
            recorded.events.append(("episodes", copy.deepcopy(arguments)))
            return super().episodes(*arguments)

        def update(self, *arguments):
            recorded.events.append(("update", arguments))
            return super().update(*arguments)

        def measured(self, *arguments):
            recorded.events.append(("measured", arguments))
            return super().measured(*arguments)

        def step(self, *arguments):
            recorded.events.append(("step", arguments))
            return super().step(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "Watch", Noting)
        recorded.code = grpo.main([*FLAGS, "--output_dir", str(recorded.folder)])
    return recorded
