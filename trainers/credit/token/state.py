"""What token operators remember from step to step: the schedule of lambda and Delight's running eta."""

from __future__ import annotations

from typing import Any

from trainers.credit.token.schedule import Schedule
from trainers.credit.token.settings import TokenSettings


class TokenState:
    """Part of every checkpoint. `lam` is lambda of the coming step; `see` moves on after it."""

    def __init__(self, settings: TokenSettings) -> None:
        self.schedule = Schedule(
            settings.sepa_schedule,
            settings.sepa_steps,
            settings.sepa_delay,
            settings.sepa_gate,
            settings.sepa_decay,
            settings.sepa_variance,
            settings.sepa_warmup,
        )
        self.eta: float | None = None

    @property
    def lam(self) -> float:
        """Lambda of the coming step."""
        return self.schedule.value()

    def stands_at(self, step: int) -> None:
        """Optimizer steps taken before the coming batch; see `Schedule.stands_at`."""
        self.schedule.stands_at(step)

    def see(self, correct: float | None, variance: float | None) -> None:
        """What a step showed; see `Schedule.see`."""
        self.schedule.see(correct, variance)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"schedule": self.schedule.state_dict(), "eta": self.eta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.schedule.load_state_dict(state["schedule"])
        self.eta = state["eta"]
