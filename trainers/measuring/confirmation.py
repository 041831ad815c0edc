"""What a confirmation says: start and chosen weights of a run on tasks that nothing was trained or chosen on.

`trainers.heldout.confirm` makes it; console, summary and report read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.trajectory import Trajectory
from trainers.measuring.measure import Measurement
from trainers.stats import Interval, PairedTest, bootstrap_mean, paired_test, task_differences

Episodes = Mapping[str, Mapping[str, Sequence[Trajectory]]]
"""By policy (`start`, `best`) and arm."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What came of it.

    Attributes:
        source: Which tasks, or why there are none (`TaskSets.confirm_text`).
        step: The chosen step; `None` where nothing was measured.
        before: The start, by arm; the arm that chose comes first.
        after: The weights of `best/`, by arm.
        why: Why nothing was measured; empty where it was.
    """

    source: str = ""
    step: int | None = None
    before: dict[str, Measurement] = field(default_factory=dict)
    after: dict[str, Measurement] = field(default_factory=dict)
    why: str = ""

    def test(self, arm: str) -> PairedTest:
        """Paired test of `best/` against the start."""
        return paired_test(self.before[arm].outcomes, self.after[arm].outcomes)

    def interval(self, arm: str) -> Interval | None:
        """95 % interval of the difference of the pass rates (bootstrap over tasks); `None` without a common task."""
        differences = task_differences(self.before[arm].outcomes, self.after[arm].outcomes)
        return bootstrap_mean([[difference] for difference in differences]) if differences else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record, without figures that follow from others; `from_json` gives the same confirmation back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Confirmation:
        """Rebuild a confirmation from `to_json`'s record.

        Raises:
            TypeError: A key is unknown.
            ValueError: A measurement is none.
        """
        sides = {
            side: {name: Measurement.from_json(m) for name, m in record.get(side, {}).items()}
            for side in ("before", "after")
        }
        return cls(**{**record, **sides})
