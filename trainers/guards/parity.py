"""Guards of what is trained: that it is what was sampled, by the tokens and by their log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.rollouts.rules import VLLM

# -- Guard 4, mask by length: that exactly the sampled tokens are trained ---------------------------------------------

TRAINED, SAMPLED = "mask/trained_tokens", "mask/sampled_tokens"
"""Tokens with loss mask 1 in the trainer's batch, and tokens that the policy sampled in episodes that count."""


@dataclass
class MaskByLength(Guard):
    """The loss mask has as many ones as tokens were sampled; padding is told by length, never by its id.

    Attributes:
        pad_id: Which id pads; `None` where it also ends replies.
        usual: Share of completions that may hold it: at temperature 1 any id is sampled now and then.
    """

    name: ClassVar[str] = GuardName.MASK_BY_LENGTH
    pad_id: int | None = None
    usual: float = 0.1

    def begin(self, facts: Facts) -> None:
        """Which id pads. One that also ends replies is expected in them."""
        self.pad_id = None if facts.pad_id in facts.eos_ids else facts.pad_id

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Completions that hold the pad id, where they are more than chance."""
        if self.pad_id is None:
            return
        hit = sum(any(self.pad_id in turn.ids for turn in episode.turns) for episode in played.trajectories)
        if hit > self.usual * len(played.trajectories):
            yield note(
                "pad_inside",
                f"mask: {hit} of {len(played.trajectories)} completions of step {step} hold the pad id {self.pad_id} "
                "inside their text. Masks are made from lengths, so nothing is lost here; code that reads the records "
                "must not look for that id.",
            )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The two counts."""
        trained, sampled = metrics.get(TRAINED), metrics.get(SAMPLED)
        if trained is not None and sampled is not None and trained != sampled:
            yield stop(
                "mask",
                f"mask: {trained:g} tokens of step {step} have loss mask 1, but the policy sampled {sampled:g}: the "
                "environment's tokens are trained, or sampled ones are not. Build the mask from token counts (the "
                "versions of trl and transformers must be those of constraints.txt).",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """The difference of the counts."""
        if TRAINED in metrics and SAMPLED in metrics:
            apart = abs(metrics[TRAINED] - metrics[SAMPLED])
            yield Gauge("tokens trained against tokens sampled", apart, Fires.ABOVE, 0.0)


# -- Guard 3, log-probability parity and the sign of the KL term: whether sampler and trainer mean the same policy ----


@dataclass
class LogprobParity(Guard):
    """The trainer rescores what was sampled: the two must agree, and the KL to the start must be 0 at the start.

    Reads `sampling/logp_difference_mean`, `sampling/logp_difference_max`, and `sampling/ratio_max` or, where the
    sampler is corrected, `sampling/importance_capped_frac`.

    Attributes:
        mean_limit: Nats of mean absolute difference of log-probabilities.
        ratio_limit: Largest exp(trained - sampled) of a token.
        corrected_limit: Instead of `mean_limit` where importance weights correct for the sampler, which then differs by
            nature (a server, a copy in another number format, the weights themselves in bfloat16); `capped_limit`,
            instead of `ratio_limit`, the share of tokens whose weight may reach its cap.
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
    advice: str = field(default="", repr=False)

    def begin(self, facts: Facts) -> None:
        """Who samples, and who trains, in which number formats."""
        self.exact = facts.exact
        self.where = (
            f"sampler {facts.sampler or 'unknown'}, {facts.dtype or '?'}, T={facts.sampling.temperature:g}; trainer "
            f"{facts.training_dtype or '?'}, T={facts.config.temperature:g}"
        )
        self.advice = _parity_advice(facts)

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The figures of rescoring."""
        limit, name, top, what = self._limits()
        mean, other = metrics.get("sampling/logp_difference_mean"), metrics.get(name)
        largest = metrics.get("sampling/logp_difference_max")
        parts = [
            f"mean abs difference {mean:.3g} (limit {limit:g})" if mean is not None else "",
            f"largest {largest:.3g}" if largest is not None else "",
            f"{what} {other:.3g} (limit {top:g})" if other is not None else "",
        ]
        message = (
            f"parity FAILED at step {step}: trainer against sampler {', '.join(filter(None, parts))}; {self.where}. "
            f"{self.advice}"
        )
        if mean is not None and mean > self.hopeless * limit:
            yield stop("parity_lost", message + " It is another policy that samples: the run ends.")
        elif (mean is not None and mean > limit) or (other is not None and other > top):
            yield warn("parity", message)
        yield from self._kl(step, metrics.get("kl"))

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How far sampler and trainer are apart."""
        limit, name, top, what = self._limits()
        if (mean := metrics.get("sampling/logp_difference_mean")) is not None:
            yield Gauge("mean abs difference of log-probabilities (nats)", mean, Fires.ABOVE, limit)
        if name in metrics:
            yield Gauge(what, metrics[name], Fires.ABOVE, top)

    def _limits(self) -> tuple[float, str, float, str]:
        """Limit of the mean; metric, limit and meaning of the figure beside it."""
        if self.exact:
            return self.mean_limit, "sampling/ratio_max", self.ratio_limit, "largest ratio"
        what = "share of tokens whose weight is at importance_cap"
        return self.corrected_limit, "sampling/importance_capped_frac", self.capped_limit, what

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


def _parity_advice(facts: Facts) -> str:
    """What helps where the two differ, with the settings of this run."""
    config = facts.config
    if facts.exact:
        return (
            "Both read the same weights in the same number format: use the same temperature, leave disable_dropout on, "
            "and the versions of constraints.txt."
        )
    head = "Importance weights correct for what a number format rounds off (about 0.03 nats in bfloat16), not for this"
    if config.sampler.startswith(VLLM):
        return f"{head}: a vLLM server needs logprobs_mode=processed_logprobs and the weights of this step."
    if config.overlap:
        return f"{head}: weights that move far in one step need a lower learning_rate (or overlap=0)."
    if facts.dtype == facts.training_dtype != "float32":
        return f"{head}: dtype=float32 shows whether it is the format (sample_dtype=bfloat16 keeps sampling fast)."
    return f"{head}: sample_dtype=same samples from the trained weights themselves."
