"""GiGPOTrainer: TRL's GRPOTrainer, fed with whole episodes and credited turn by turn.

What is TRL's stays TRL's: padding, old log-probabilities, KL, loss types, accumulation, optimizer, metric names. From a
reward to the loss, in the order in which TRL calls it:

1. `play` (TRL's `rollout_func`): `trainers.rollouts` plays the episodes; rewards, ids, masks.
2. `_generate_and_score_completions`: their advantages, shape (B, T): `trainers.credit.batch` says what credit reads,
   `trainers.credit.pipeline` computes it; the formula stands at the top of `trainers.credit.turn`.
3. `_compute_loss`, `_get_per_token_logps_and_entropies`: TRL's loss, with those advantages weighted where the sampler
   is not exactly the trained weights (`trainers.loss`). Where older observations were shown as lines, each reply is
   scored behind the prompt that it was sampled from (`trainers.pieces`). By tokens, the rows of a step are scored in
   several passes (`trainers.passes`).

Beside it, `evaluate` measures the held-out tasks (`trainers.heldout`).

Contract with TRL 1.16 (held by tests): an advantages tensor of shape (B, T) is used as it is; every extra tensor of
the batch is shuffled and split with it; a reward of `None` leaves the group's mean; `env_mask` becomes the loss mask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from gymnasium import Env
from transformers import TrainerCallback, TrainerControl

from agents.models.card import ModelCard
from agents.policy import PolicyError, Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult, RolloutState
from agents.t2po import T2PO, T2POConfig
from tasks.task import Task
from trainers.activations import attend_in_one_kernel, keep_less
from trainers.construction import (
    check_arguments,
    idle_in_library,
    numbers_as_arrays,
    pool_dataset,
    put_back_in_full,
    weights_in_full,
)
from trainers.credit import NO_TURN, Credit, TurnSignal
from trainers.credit.batch import batch_of, joined, padded
from trainers.errors import ConfigError
from trainers.gradients import PLAIN, ComparesGradients
from trainers.heldout import HeldOut
from trainers.heldout.selection import satisfy_callbacks
from trainers.loss import (
    POLICY_ADAPTER,
    active_dropout,
    attach_reference,
    correct,
    own_reference,
    silence_dropout,
    without_reference,
)
from trainers.measure import check_rewards
from trainers.pieces import PIECES, Piece, pieces_of, score_pieces
from trainers.processes import play_shared
from trainers.rollouts.curriculum import RulesError
from trainers.rollouts.play import Rollouts
from trainers.rollouts.rules import VLLM, Draw, Played, Rules, make_rules, mask_truncated
from trainers.rollouts.samplers import VERSION, drop_stale, make_sampler, rounds
from trainers.rollouts.samplers import Sampler as RolloutSampler
from trainers.settings import GiGPOConfig
from trainers.settings.checks import LIGER_EXACT, check_config, check_parts, check_processes, check_targets


def episode_reward(*, episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """The reward each episode got from its environment; `None` for an infrastructure failure."""
    return episode_reward


@contextmanager
def _without_advice_on_lost_episodes() -> Iterator[None]:
    """TRL prints each step's first row without a reward, all its text, and asks for a reward function that gives one.

    Here such a row is an episode that the infrastructure ended: counted, and no one's mistake.
    """
    logger = logging.getLogger("trl.trainer.grpo_trainer")

    def known(record: logging.LogRecord) -> bool:
        return "All reward functions returned None" not in record.getMessage()

    logger.addFilter(known)
    try:
        yield
    finally:
        logger.removeFilter(known)


def _check_and_settle(
    model: Any, args: GiGPOConfig, processing_class: Any, peft_config: Any, t2po: T2POConfig | None
) -> None:
    """Refuse what does not go together; what the model decides is written into `args`, and its dropout settled.

    Raises:
        ConfigError: It does not; the first reason.
    """
    check_config(args)
    check_parts(processing_class, peft_config)
    check_targets(model, peft_config)
    args.rounded = rounds(model)
    _settle_dropout(model, args)
    check_processes(args, t2po)


def _settle_dropout(model: Any, args: GiGPOConfig) -> None:
    """Switch every dropout off; where that is not wanted, refuse a model that has one."""
    if args.disable_dropout:
        silence_dropout(model)
    elif found := active_dropout(model):
        raise ConfigError(
            f"disable_dropout=false: {len(found)} dropouts of this model would act ({found[0]}), and what is "
            "trained would not be what was sampled. Leave disable_dropout on."
        )


class GiGPOTrainer(ComparesGradients):
    """Trains a policy on multi-turn episodes with episode and turn advantages.

    Args:
        model: A causal LM of transformers (or a PEFT model of one).
        args: The settings; what cannot hold per-token credit is refused.
        processing_class: The tokenizer.
        pool: Tasks to train on.
        make_env: Opens one environment, with wrappers of Gymnasium or without (see `envs.wrapping`); called once per
            slot, and once or twice more to look at one.
        held_out: Tasks only measured on, with the rule that chooses the best; `None` measures nothing.
        t2po: Switches of the T2PO wrapper; `None` samples plainly.
        slots: Episodes in flight at a time.
        workers: Threads that step environments.
        ahead: Tasks laid out while the policy decodes; a pool of sandboxes has `slots + ahead`.
        max_turn_tokens: Cap on one reply.
        max_episode_tokens: Most ids of an episode, prompt and observations included; `None` is no budget. `held_out`
            has one of its own.
        on_episodes: Called with the episodes of each step, for records.
        on_round: Called after each round of a rollout with its name (`rollout` or `held-out`) and how far it is; from
            another thread where a generation is sampled ahead (`overlap`).
        callbacks: Of transformers' `Trainer`; `GuardCallback` switches the guards on.
        peft_config: Makes an adapter around `model`.
        unknown: Refused, with what to give instead.

    Raises:
        ConfigError: Something that it is given cannot work.
    """

    # Set by transformers and TRL, which are not analysed.
    control: TrainerControl

    def __init__(
        self,
        model: Any,
        args: GiGPOConfig,
        processing_class: Any,
        pool: Sequence[Task] = (),
        make_env: Callable[[], Env[str, str]] | None = None,
        *,
        held_out: HeldOut | None = None,
        t2po: T2POConfig | None = None,
        slots: int = 32,
        workers: int = 2,
        ahead: int = 0,
        max_turn_tokens: int = 512,
        max_episode_tokens: int | None = None,
        on_episodes: Callable[[int, RolloutResult], None] | None = None,
        on_round: Callable[[str, RolloutState], None] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        peft_config: Any = None,
        **unknown: Any,
    ) -> None:
        check_arguments(model, args, pool, make_env, unknown)
        assert make_env is not None
        _check_and_settle(model, args, processing_class, peft_config, t2po)
        satisfy_callbacks(args, callbacks or [], held_out)
        if held_out is None:
            args.eval_strategy, args.eval_on_start = "no", False  # or transformers asks for a data set
        self.held_out, self.on_episodes, self._t2po_config = held_out, on_episodes, t2po
        self.card: ModelCard | None = None
        self.credit = Credit(args)
        self._nothing_played_yet()
        kept, reference = weights_in_full(model), own_reference(model, args, peft_config)
        with nullcontext() if reference is None else without_reference(args):
            super().__init__(
                model=model,
                args=args,
                processing_class=processing_class,
                reward_funcs=[episode_reward],
                rollout_func=lambda prompts, trainer: numbers_as_arrays(trainer.play(len(prompts))),
                train_dataset=pool_dataset(pool, args),
                eval_dataset=pool_dataset(held_out.everything, args) if held_out else None,
                callbacks=callbacks,
                peft_config=peft_config,
            )
        self.mask_truncated_completions = False  # TRL's rule; ours acts in `play`
        if kept is not None:
            put_back_in_full(self.model, kept)
        keep_less(self.model)
        attend_in_one_kernel()
        if reference is not None:
            attach_reference(self, reference)
        self.rollouts = Rollouts(
            self._make_sampler,
            make_env,
            {task.id: task for task in pool},
            group_size=self.num_generations,
            temperature=args.temperature,
            seed=args.seed,
            slots=slots,
            workers=workers,
            ahead=ahead,
            mode=args.rollout_mode,
            max_turn_tokens=max_turn_tokens,
            max_episode_tokens=max_episode_tokens,
            step=lambda: self.state.global_step,
            rules=self._make_rules(pool),
            on_round=on_round,
        )
        self._start_sampler()
        self._greet(callbacks or [])

    def _nothing_played_yet(self) -> None:
        """What a step leaves for the next call of TRL, before the first."""
        self._rows: list[dict[str, Any]] = []
        self._played: Played | None = None
        self._loss_inputs: dict[str, Any] | None = None
        self._lays_out = False
        """The next generation's first tasks are to be laid out while this one is learned on."""
        self._scoring = False
        """TRL scores the episodes that were just played, in their order."""
        self._cut: list[list[Piece]] | None = None
        """The pieces of what was just played: TRL scores it up to twice (old and reference)."""
        self.advantaged = 0.0
        """Trained tokens with an advantage, summed until somebody sets it back: what steps had to learn from."""

    def _greet(self, callbacks: Sequence[Any]) -> None:
        """Tell callbacks who calls them, and people which settings nothing acts on."""
        for callback in callbacks:
            if hasattr(callback, "attach"):
                callback.attach(self)
        if not any(getattr(callback, "keeps_run_folder", False) for callback in callbacks):
            for line in idle_in_library(self.args, self.held_out, callbacks):
                self.warn(0, line)

    # -- sampler and measurements ---------------------------------------------------------------------------------

    @property
    def engine(self) -> RolloutEngine:
        """Plays episodes; made at first use, closed by `close`."""
        return self.rollouts.engine

    def _make_sampler(self) -> RolloutSampler:
        args: GiGPOConfig = self.args
        sampler = make_sampler(
            self.accelerator.unwrap_model(self.model),
            self.processing_class,
            self.eos_token_ids,
            sampler=args.sampler,
            sample_dtype=args.sample_dtype,
            adapters=args.sampler_adapters,
            frozen=bool(args.overlap),
            retries=args.sampler_retries,
        )
        if args.use_liger_kernel and sampler.exact:
            raise ConfigError(LIGER_EXACT)
        return replace(sampler, policy=T2PO(sampler.policy, self._t2po_config)) if self._t2po_config else sampler

    def _start_sampler(self) -> None:
        """A server, or a copy beside the model, is tried now, not after the first minutes of a run."""
        served = self.args.sampler.startswith(VLLM)
        if not served and not self.args.overlap:
            return
        if self.accelerator.num_processes > 1:
            raise ConfigError(
                f"sampler={self.args.sampler}: {self.accelerator.num_processes} processes would each publish adapters "
                "of their own, and a server keeps few. Train in one process, or sample in process"
            )
        try:
            self.rollouts.try_sampler()
        except PolicyError as error:
            self.rollouts.close()
            if served:
                raise ConfigError(f"sampler={self.args.sampler}: {error}") from error
            raise ConfigError(
                f"overlap={self.args.overlap} samples from a copy while the model is trained: {error}. Leave overlap "
                "out, or sample from a server (--sampler vllm:URL)"
            ) from error

    def _make_rules(self, pool: Sequence[Task]) -> Rules:
        try:
            return make_rules(self.args, pool, self.accelerator.num_processes)
        except RulesError as error:
            raise ConfigError(str(error)) from error

    def rollout(self, jobs: Sequence[Job], sampling: Sampling, *, training: bool) -> RolloutResult:
        """Play `jobs` with the weights as they are now; in a measurement T2PO keeps its turn cap only, unless asked.

        A measurement is shared out over the processes and gathered: each has the whole result.
        """
        if training:
            self.rollouts.renew()
            return self.rollouts.run(jobs, sampling, training=True)
        result = play_shared(lambda mine: self.rollouts.run(mine, sampling, training=False), jobs, sampling)
        check_rewards(result.trajectories, f"the measurement of step {self.state.global_step}")
        return result

    def rollout_together(self, parts: Sequence[tuple[Sequence[Job], Sampling]]) -> list[RolloutResult]:
        """Play several lists of episodes to measure them: one after the other, or at the same time if asked."""
        if self.accelerator.num_processes > 1 or not self.args.held_out_together:
            return [self.rollout(jobs, sampling, training=False) for jobs, sampling in parts]
        results = self.rollouts.run_together(parts)
        for result in results:
            check_rewards(result.trajectories, f"the measurement of step {self.state.global_step}")
        return results

    # -- from reward to loss: 1. the episodes ---------------------------------------------------------------------

    def play(self, count: int) -> dict[str, list[Any]]:
        """One episode per row of the generation batch, in TRL's form (its `rollout_func`)."""
        end = self._end_id
        task_ids = [row["task_id"] for row in self._rows]
        draw = Draw(task_ids, self.accelerator.process_index * count, self._step, self.state.global_step)
        if self.args.partial_batches:
            draw = replace(draw, later=self._next_draw())
        played = self.rollouts.play(draw, end_id=end)
        self._played = played = mask_truncated(played) if self.args.mask_truncated_completions else played
        self._cut = pieces_of(played.episodes, played.flats, end)
        self._rename_rows(played)
        self._log_episodes(played)
        self._say_if_nothing_counts([episode.reward for episode in played.episodes])
        return {
            "prompt_ids": [episode.prompt_ids or [end] for episode in played.episodes],
            "completion_ids": [flat.ids for flat in played.flats],
            "logprobs": [flat.logprobs for flat in played.flats],
            "env_mask": [flat.mask for flat in played.flats],
            "episode_reward": [episode.reward for episode in played.episodes],
        }

    # -- 2. their advantages --------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._rows = inputs
        self._scoring = True
        try:
            with _without_advice_on_lost_episodes():
                out = super()._generate_and_score_completions(inputs)
            if (pieces := self._pieces()) is not None:
                out[PIECES] = pieces
        finally:
            self._scoring = False
        assert self._played is not None
        width, device = out["completion_ids"].size(1), out["completion_ids"].device
        # Raises where TRL would have cut a completion.
        turn_ids = padded([flat.turn_ids for flat in self._played.flats], NO_TURN, width)
        for name, values in zip(("advantages", PLAIN), self._advantages(width), strict=False):
            out[name] = torch.from_numpy(values).to(device, torch.float32)
        out["turn_ids"] = torch.from_numpy(turn_ids).to(device)
        self._count_mask(out)
        if self.args.staleness_bound is not None:
            versions = self._played.versions or [self._played.version] * len(inputs)
            out[VERSION] = torch.tensor(versions, device=device)
        return out

    def _advantages(self, width: int) -> list[np.ndarray]:
        """Per-token advantages, shape (local rows, width); behind them those of plain GRPO where they are compared."""
        assert self._played is not None
        batch = batch_of(
            self._played.episodes,
            self._played.flats,
            TurnSignal(self.args.turn_signal),
            self.credit,
            group_size=self.num_generations,
            tokenizer=self.processing_class,
            # Of the first draw: what is trained on was chosen by how it ended.
            passed=[e.passed if e.reward is not None else None for e in self._played.measured.trajectories],
        )
        # Groups may span processes: each computes the advantages of all episodes and takes those of its rows.
        everything = joined(gather_object([batch]))
        result = self.credit.assign(everything, self.state.global_step)
        if self.on_advantages is not None:
            self.on_advantages(self.state.global_step, everything.turn_advantages(result.advantages))
        for name, value in result.metrics.items():
            self.note_metric(name, float(value))
        first = self.accelerator.process_index * len(batch.rewards)
        both = [values for values in (result.advantages, result.plain) if values is not None]
        return [padded(list(values[first : first + len(batch.rewards), :width]), 0.0, width) for values in both]

    # -- 3. the loss ----------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        played = self._played
        inputs = super()._prepare_inputs(generation_batch)
        if self._played is not played:  # a generation is about to be learned on
            if self.args.overlap:
                self._sample_ahead()
            else:
                self._lays_out = True
        bound = self.args.staleness_bound
        if bound is None:
            return inputs
        # Every process has rows of the same generation, so one staleness is that of all (of partial batches the most).
        self.note_metric("rollouts/staleness", float(self.state.global_step - int(inputs[VERSION].min())))
        inputs, dropped = drop_stale(inputs, self.state.global_step, bound)
        self._note_sums({"rollouts/stale_dropped": float(dropped)})
        return inputs

    def _sample_ahead(self) -> None:
        """The next generation is sampled meanwhile, with the weights of now.

        But not where a checkpoint is written before it: a resumed run samples it with the weights of the checkpoint, so
        the uninterrupted run does so, too. (With partial batches none is resumed.)
        """
        partial = self.args.partial_batches
        if (draw := self._next_draw(unless=None if partial else self._saves)) is not None:
            if partial:
                draw = replace(draw, later=self._next_draw(after=2))
            self.rollouts.begin(draw, end_id=self._end_id)

    def _meanwhile(self) -> None:
        """The first tasks of the next generation are laid out meanwhile, unless a measurement comes before them."""
        lays_out, self._lays_out = self._lays_out, False
        if lays_out and (draw := self._next_draw(unless=self._measures)) is not None:
            count = len(draw.task_ids) // self.accelerator.num_processes
            first = self.accelerator.process_index * count
            self.rollouts.lay_out(replace(draw, task_ids=draw.task_ids[first : first + count], offset=first))

    @property
    def _end_id(self) -> int:
        """Stands in where an episode sampled nothing."""
        return min(self.eos_token_ids)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._loss_inputs = dict(inputs)  # a copy: the same batch comes again with num_iterations
        try:
            return super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        """TRL's, which calls it in the loss before it reads the advantages: the place where weights can enter."""
        plain = super()._get_per_token_logps_and_entropies
        pieces, tokens = self._pieces(), self.args.token_budget
        # Unwrapping looks at every module, which takes milliseconds; passes of whole rows need it not.
        bare = model if pieces is None else self.accelerator.unwrap_model(model)
        if pieces is not None or tokens is not None:
            kwargs.pop("batch_size", None)  # of whole episodes

        def score(rows: Sequence[int], ids: torch.Tensor, mask: torch.Tensor, keep: int) -> Any:
            if pieces is None:
                return plain(model, ids, mask, keep, **kwargs)
            return score_pieces(
                [pieces[row] for row in rows],
                lambda ids, mask, wanted: plain(bare, ids, mask, wanted, **kwargs),
                width=keep,
                at_once=self.args.per_device_train_batch_size if tokens is None else None,
                tokens=None if tokens is None else self._budget,
                pad_id=self.processing_class.pad_token_id,
                device=ids.device,
                first=None if bare is model else lambda ids, mask, wanted: plain(model, ids, mask, wanted, **kwargs),
            )

        if tokens is None:
            out = score(range(len(input_ids)), input_ids, attention_mask, logits_to_keep)
        else:
            out = self._in_passes(score, input_ids, attention_mask, logits_to_keep, alone=pieces is not None)
        if self._loss_inputs is not None:
            exact, gather = self.rollouts.exact, self.accelerator.gather
            seen = correct(self._loss_inputs, out[0].detach(), exact=exact, cap=self.args.importance_cap, gather=gather)
            self.advantaged += seen.advantaged
            for name, value in seen.means.items():
                self.note_metric(name, value)
            for name, value in seen.largest.items():
                self.note_largest(name, value)
            self._note_kl_tail(self._loss_inputs, out[0].detach())
        return out

    def _pieces(self) -> list[list[Piece]] | None:
        """How the completions that TRL scores now are cut; `None` where a pass takes whole episodes.

        Raises:
            RuntimeError: Somebody else scores completions, whose prompts only the batch knows.
        """
        if self._loss_inputs is not None:
            return self._loss_inputs.get(PIECES)
        if self._cut is not None and not self._scoring:
            raise RuntimeError(
                "keep_observations: each reply has a prompt of its own, which `prompt_ids` does not hold; call "
                "_compute_loss with the batch, or agents.trajectory.Trajectory.prompts for the prompts"
            )
        return self._cut

    # -- what it leaves -------------------------------------------------------------------------------------------

    def save_policy(self, folder: Path) -> None:
        """Write the policy as a model folder: whole weights, or the adapter where one is trained."""
        model = self.accelerator.unwrap_model(self.model)
        # Not also the frozen copy that the KL of an adapter is measured from.
        chosen = {"selected_adapters": [POLICY_ADAPTER]} if hasattr(model, "peft_config") else {}
        model.save_pretrained(folder, **chosen)
        self.processing_class.save_pretrained(folder)
        self.write_own_card(folder)

    @property
    def plain_sampling(self) -> bool:
        """Held-out episodes are sampled as a later evaluation does it: in process, from these weights, no T2PO."""
        return self.rollouts.exact and self._t2po_config is None

    def own_card(self) -> ModelCard | None:
        """How the policy is spoken to: as the run around says (`card`), or an environment of this trainer."""
        if self.card is None:
            self.card = self.rollouts.card()
        return self.card and replace(self.card, end_ids=tuple(sorted(self.eos_token_ids)))

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """The run folder has its own record; TRL's card is not written."""

    def close(self) -> None:
        """End the environments and their sandboxes. Idempotent."""
        self.rollouts.close()
