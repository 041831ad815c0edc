"""Guard 3, log-probability parity and the sign of the KL term: whether sampler and trainer mean the same policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainers.guards.events import Facts
from trainers.guards.guard import Alarm, Guard, stop, warn
from trainers.guards.levels import GuardName


@dataclass
class LogprobParity(Guard):
    """The trainer rescores what was sampled: the two must agree, and the KL to the start must be 0 at the start.

    Reads `sampling/logp_difference_mean`, `sampling/logp_difference_max`, and `sampling/ratio_max` or, where the
    sampler is corrected, `sampling/importance_capped_frac`.

    Attributes:
        mean_limit: Nats of mean absolute difference of log-probabilities.
        ratio_limit: Largest exp(trained - sampled) of a token.
        corrected_limit: Instead of `mean_limit` where importance weights correct for the sampler, which then differs by
            nature; `capped_limit`, instead of `ratio_limit`, the share of tokens whose weight may reach its cap.
        hopeless: Times the limit of the mean from which it is another policy that samples, and the run ends.
        start_kl: Nats of KL to the reference at the first step, where the policy still is the reference.
    """

    name: ClassVar[str] = GuardName.LOGPROB_PARITY
    mean_limit: float = 0.02
    ratio_limit: float = 1.2
    corrected_limit: float = 0.1
    capped_limit: float = 0.01
    hopeless: float = 10.0
    start_kl: float = 0.01
    exact: bool = True
    where: str = field(default="", repr=False)

    def begin(self, facts: Facts) -> None:
        """Who samples, and who trains."""
        self.exact = facts.exact
        self.where = (
            f"sampler {facts.sampler or 'unknown'}, {facts.dtype or '?'}, T={facts.sampling.temperature:g}; trainer "
            f"{facts.training_dtype or '?'}, T={facts.config.temperature:g}"
        )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The figures of rescoring."""
        mean = metrics.get("sampling/logp_difference_mean")
        limit = self.mean_limit if self.exact else self.corrected_limit
        name, top = ("ratio_max", self.ratio_limit) if self.exact else ("importance_capped_frac", self.capped_limit)
        other = metrics.get(f"sampling/{name}")
        largest = metrics.get("sampling/logp_difference_max")
        what = "largest ratio" if self.exact else "share of tokens whose weight is at importance_cap"
        parts = [
            f"mean abs difference {mean:.3g} (limit {limit:g})" if mean is not None else "",
            f"largest {largest:.3g}" if largest is not None else "",
            f"{what} {other:.3g} (limit {top:g})" if other is not None else "",
        ]
        message = (
            f"parity FAILED at step {step}: trainer against sampler {', '.join(filter(None, parts))}; {self.where}. "
            + (
                "Use the same temperature and number format on both sides."
                if self.exact
                else "Importance weights correct for what a number format makes, not for this: use the same "
                "temperature; a vLLM server needs logprobs_mode=processed_logprobs and the weights of this step."
            )
        )
        if mean is not None and mean > self.hopeless * limit:
            yield stop("parity_lost", message + " It is another policy that samples: the run ends.")
        elif (mean is not None and mean > limit) or (other is not None and other > top):
            yield warn("parity", message)
        yield from self._kl(step, metrics.get("kl"))

    def _kl(self, step: int, kl: float | None) -> Iterator[Alarm]:
        if kl is None:
            return
        if kl < -1e-6:
            yield stop(
                "kl_negative",
                f"kl is {kl:.3g} at step {step}: k3 is never negative, so the KL term is wrong. Set beta=0.",
            )
        elif step == 1 and kl > self.start_kl:
            yield warn(
                "kl_start",
                f"kl is {kl:.3g} at step 1, where the policy still is its reference and it must be 0: the reference is "
                "another model, or dropout is on. Check disable_dropout and the reference.",
            )
