"""Settings of the held-out measurement: how it decodes, what chooses `best/`, when a run stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class HeldOutFields:
    """The held-out rule. The pool never decides."""

    held_out_temperature: float = field(
        default=1.0, metadata={"help": "Temperature of the sampled held-out arm (a greedy arm runs beside it)."}
    )
    held_out_greedy: bool = field(default=True, metadata={"help": "Also measure greedily."})
    best_metric: str = field(
        default="sampled_pass_rate",
        metadata={"help": "Held-out figure that chooses `best/`: {sampled,greedy}_{pass_rate,assertion_rate,reward}."},
    )
    patience: int = field(
        default=0, metadata={"help": "Stop after this many held-out evaluations without a new best; 0 = never."}
    )
    min_delta: float = field(default=0.0, metadata={"help": "How much better a new best must be."})

    def held_out_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        settings = ["sampled"] + (["greedy"] if self.held_out_greedy else [])
        figures = ["pass_rate", "assertion_rate", "reward"]
        known = [f"{setting}_{figure}" for setting in settings for figure in figures]
        if self.best_metric not in known:
            yield f"best_metric={self.best_metric!r}: one of {', '.join(known)}."
        if self.patience < 0:
            yield f"patience={self.patience}: 0 never stops; else a number of evaluations."
        if self.held_out_temperature <= 0:
            yield (
                f"held_out_temperature={self.held_out_temperature}: above 0; the greedy arm is measured by "
                "held_out_greedy."
            )
