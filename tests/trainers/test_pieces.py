"""Episodes whose prompts show older observations as lines: loss and gradient worked out by hand, and what must hold.

One group, `keep_observations` 1, rewards 1 and 0: without scaling the episode terms are +0.5 and -0.5.

    episode 0, one turn:    prompt P,                                     reply a0 (2 ids)
    episode 1, three turns: prompt P,                                     reply a (3 ids)
                            prompt P a A,                                 reply b (2 ids, the second one forced)
                            prompt P a (line of A) b B,                   reply c (4 ids)

The turn term (weight 0.5, gamma 0.5): episode 0 has a signal of 0.2 at the state S; episode 1 has 0, 0.4 and none at S,
T and U, so its returns are 0.2 and 0.4. At S both returns are 0.2: 0. T is alone: 0. A second set of signals makes the
first return of episode 1 0.1 + 0.5 * 0.4 = 0.3: at S -0.05 and +0.05, so advantages 0.475 and -0.475 there.

    loss = -(sum over trained ids of advantage * ratio) / 10 trained ids, and every ratio is 1
"""

from __future__ import annotations

import copy
import io
import math
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig

from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from agents.trajectory import Trajectory, Turn
from tests.trainers.replay import make_scripted
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers.credit import CreditSettings, TurnSignal
from trainers.pieces import PIECES, pieces_of
from trainers.rollouts.rules import as_completion, weightless

pytestmark = pytest.mark.filterwarnings("ignore")

P = [5, 6, 7, 8]
A, LINE_OF_A = [11, 12, 13, 14, 15], [11, 19]
B, LINE_OF_B = [21, 22, 23, 24], [21, 29]
REPLIES = [[[40, 41]], [[50, 51, 52], [60, 61], [70, 71, 72, 73]]]
FORCED = (1, 1, 1)
"""Episode, turn, place of the one id that was not sampled."""
PROMPTS = [
    [P],
    [
        P,
        [*P, *REPLIES[1][0], *A],
        [*P, *REPLIES[1][0], *LINE_OF_A, *REPLIES[1][1], *B],
    ],
]
ADVANTAGES = [[0.475], [-0.475, -0.5, -0.5]]
LOSS = -(2 * 0.475 - 3 * 0.475 - 1 * 0.5 - 4 * 0.5) / 10


def episodes(keep: int | None = 1) -> list[Trajectory]:
    signals, states = [[0.2], [0.1, 0.4, None]], ["S", "STU"]
    out = []
    for number, replies in enumerate(REPLIES):
        turns = [
            Turn(
                index=t,
                context_ids=[[], A, B][t],
                short_ids=[None, LINE_OF_A, LINE_OF_B][t] if keep else None,
                ids=ids,
                logprobs=[-5.0] * len(ids),
                entropies=[5.0] * len(ids),
                forced=[(number, t, j) == FORCED for j in range(len(ids))],
                finish=None,
                reply="",
                signal=signals[number][t],
                anchor=states[number][t],
            )
            for t, ids in enumerate(replies)
        ]
        made = Trajectory("toy-0", "", number, number, P, turns, "max_turns", 1.0 - number, False, 1.0 - number)
        made.environment = {"keep_observations": keep} if keep else {}
        out.append(made)
    return out


def by_hand(model: torch.nn.Module) -> torch.Tensor:
    """The loss from one plain forward pass per turn; softmax, ratio and clip written out."""
    total = torch.zeros((), dtype=torch.float64)
    for number, replies in enumerate(REPLIES):
        for t, reply in enumerate(replies):
            ids = torch.tensor([*PROMPTS[number][t], *reply])
            logits = model(ids[None]).logits[0]
            for j, token in enumerate(reply):
                if (number, t, j) == FORCED:
                    continue
                row = logits[len(PROMPTS[number][t]) + j - 1]
                logp = row[token] - row.exp().sum().log()
                ratio = (logp - logp.detach()).exp()
                a = ADVANTAGES[number][t]
                total = total - torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)
    return total / 10


def scripted(tmp_path, some, **changes):
    settings = {"num_generations": len(some), "beta_turn": 0.5, "turn_gamma": 0.5, "max_steps": 1, **changes}
    return make_scripted(tmp_path, some, scale_rewards="none", **settings)


def first_batch(trainer):
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return inputs


def gradient(model) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()


@pytest.mark.parametrize("loss_type", ["dapo", "bnpo"])
@pytest.mark.parametrize("checkpointing", [None, {}, {"use_reentrant": True}], ids=["", "layers", "reentrant"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_loss_and_gradient_are_those_of_one_forward_pass_per_turn(tmp_path, loss_type, checkpointing, at_once):
    """Passes are run again in backward; with layers that are, too, and one piece or two at a time."""
    kwargs = {} if checkpointing is None else {"gradient_checkpointing_kwargs": checkpointing}
    changes = {"gradient_checkpointing": checkpointing is not None, **kwargs}
    trainer = scripted(tmp_path, episodes(), loss_type=loss_type, **changes)
    inputs = first_batch(trainer)
    trainer.args.per_device_train_batch_size = at_once
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    model = make_model(make_tokenizer()).double()  # the same seed, the same weights
    want = by_hand(model)
    want.backward()
    assert want.item() == pytest.approx(LOSS, abs=1e-12)
    assert loss.item() == pytest.approx(LOSS, abs=1e-6)
    error = ((gradient(trainer.model) - gradient(model)).norm() / gradient(model).norm()).item()
    print("relative gradient error", error)
    assert error < 1e-6
    trainer.close()


def test_append_only_is_another_loss(tmp_path):
    """The same replies behind the conversation that only grows: another gradient. So the test above can fail."""
    found = []
    for keep in (1, None):
        trainer = scripted(tmp_path, episodes(keep))
        trainer.compute_loss(trainer.model, first_batch(trainer)).backward()
        found.append(gradient(trainer.model))
        trainer.close()
    assert ((found[0] - found[1]).norm() / found[0].norm()).item() > 1e-3


def test_the_loss_weighs_episodes_not_rows(tmp_path):
    """`grpo` takes the mean over episodes: the one of three turns counts as the one of one does."""
    trainer = scripted(tmp_path, episodes(), loss_type="grpo", beta_turn=0.0)
    loss = trainer.compute_loss(trainer.model, first_batch(trainer)).item()
    assert loss == pytest.approx(-(0.5 - 0.5) / 2, abs=1e-6)
    trainer.close()
    trainer = scripted(tmp_path, episodes(), loss_type="grpo")
    loss = trainer.compute_loss(trainer.model, first_batch(trainer)).item()
    assert loss == pytest.approx(-(0.475 - (3 * 0.475 + 5 * 0.5) / 8) / 2, abs=1e-6)
    trainer.close()


def test_prompts_and_completions_are_those_that_were_sampled():
    some = episodes()
    assert [one.prompts() for one in some] == PROMPTS
    assert [one.flat().ids for one in some] == [sum(replies, []) for replies in REPLIES]
    assert some[1].flat().mask == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert some[1].flat().turn_ids == [0, 0, 0, 1, -1, 2, 2, 2, 2]
    [one, three] = pieces_of(some, [as_completion(e, 0) for e in some], 0)
    assert [(ids.tolist(), spans) for ids, spans in one] == [(P + REPLIES[0][0], [(4, 2)])]
    # The second prompt goes on from the first reply, the third one does not.
    assert [(ids.tolist(), spans) for ids, spans in three] == [
        (PROMPTS[1][1] + REPLIES[1][1], [(4, 3), (12, 2)]),
        (PROMPTS[1][2] + REPLIES[1][2], [(15, 4)]),
    ]
    assert pieces_of(episodes(None), [], 0) is None


# -- Sampled and trained ----------------------------------------------------------------------------------------------


class LongEnv(ToyEnv):
    """Seven turns of long observations, of which the last two stay."""

    max_turns = 7
    keep_observations = 2

    def step(self, reply: str):
        _, *rest = super().step(reply)
        return f"turn {self.turn}: " + "again and " * 8 + str(len(reply)), *rest

    def summary(self, observation: str) -> str:
        return observation.split(":")[0]


def long_trainer(tmp_path, **changes):
    tokenizer = make_tokenizer()
    changes = {"num_generations": 2, "per_device_train_batch_size": 4, **changes}
    peft = changes.pop("peft_config", None)
    return NotingTrainer(
        changes.pop("model", None) or make_model(tokenizer), make_config(tmp_path, **changes), tokenizer,
        [make_task(i) for i in range(4)], LongEnv, slots=8, workers=2, max_turn_tokens=6, peft_config=peft,
    )  # fmt: skip


def lora() -> LoraConfig:
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


def test_what_is_trained_is_what_was_sampled(tmp_path):
    trainer = long_trainer(tmp_path, max_steps=2, num_iterations=2)
    trainer.train()
    played = [e for some in trainer.played for e in some]
    assert len(played) == 4 and all(len(e.turns) == 7 for e in played)
    # The last two observations in full, older ones as a line; replies as sampled.
    decode = trainer.processing_class.decode
    for episode in played:
        prompts = [decode(ids, skip_special_tokens=False) for ids in episode.prompts()]
        assert prompts[6].count(": again and") == 2
        assert [f"turn {n}<|im_end|>" in prompts[6] for n in range(1, 7)] == [True] * 4 + [False] * 2
        assert all(turn.reply in prompts[6] for turn in episode.turns[:6])
    lines = [line for line in trainer.logged if "loss" in line]
    assert lines[0]["sampling/logp_difference_max"] < 2e-5
    assert lines[0]["clip_ratio/region_mean"] == 0.0
    assert lines[0]["mask/trained_tokens"] == lines[0]["mask/sampled_tokens"] == sum(len(e.flat().ids) for e in played)
    trainer.close()


@pytest.mark.parametrize(
    "reused", [{"num_iterations": 2}, {"steps_per_generation": 2, "gradient_accumulation_steps": 1}]
)
@pytest.mark.parametrize("adapter", [True, False])
def test_the_first_ratio_is_one_and_the_first_kl_zero_to_the_last_bit(tmp_path, reused, adapter):
    """Old, new and reference log-probabilities come from passes of other batches; they are equal all the same."""
    trainer = long_trainer(tmp_path, beta=0.05, peft_config=lora() if adapter else None, **reused)
    inputs = first_batch(trainer)
    seen = []
    inner = trainer._note_kl_tail
    trainer._note_kl_tail = lambda batch, trained: (seen.append((batch, trained)), inner(batch, trained))[1]
    trainer.compute_loss(trainer.model, inputs).backward()
    [(batch, now)] = seen
    on = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    assert on.sum() > 40
    assert torch.equal(now[on], inputs["old_per_token_logps"][on])
    assert trainer._metrics["train"]["kl"] == [0.0] and trainer._metrics["train"]["kl_max"] == [0.0]
    assert (now - inputs["sampling_per_token_logps"])[on].abs().max() < 2e-5
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in trainer.model.parameters())
    trainer.close()


def test_sampled_log_probabilities_are_those_of_a_forward_pass_behind_each_prompt():
    tokenizer = make_tokenizer()
    model = make_model(tokenizer).eval()
    policy = TransformersPolicy(model, tokenizer, eos_ids=[tokenizer.eos_token_id])
    with RolloutEngine(policy, LongEnv, slots=2, workers=1) as engine:
        played = engine.run([Job(make_task(i), 0, i) for i in range(3)], Sampling(1.0, 6)).trajectories
    for episode in played:
        for prompt, turn in zip(episode.prompts(), episode.turns, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *turn.ids]])).logits[0, len(prompt) - 1 : -1]
            want = logits.log_softmax(-1).gather(1, torch.tensor(turn.ids)[:, None])[:, 0].tolist()
            assert turn.logprobs == pytest.approx(want, abs=1e-5)


def test_bfloat16_and_an_adapter_train(tmp_path):
    model = make_model(make_tokenizer()).to(torch.bfloat16)
    trainer = long_trainer(tmp_path, model=model, peft_config=lora(), gradient_checkpointing=True, learning_rate=1e-2)
    trainer.train()
    lines = [line for line in trainer.logged if "loss" in line]
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in lines)
    trainer.close()


def test_credit_is_that_of_the_same_replies_in_a_conversation_that_only_grew(tmp_path):
    """Turn term, token operators and their counts see replies alone: what stands between them weighs nothing."""
    found = []
    for keep in (1, None):
        some = episodes(keep)
        for episode in some:
            for turn in episode.turns:
                turn.entropies = [token / 50 for token in turn.ids]
        trainer = scripted(tmp_path, some, token_operators="gtpo", token_signal="entropy")
        inputs = first_batch(trainer)
        on = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        rows = zip(inputs["completion_ids"], inputs["advantages"], inputs["turn_ids"], on, strict=True)
        found.append({tuple(ids[o].tolist()): (a[o].tolist(), t[o].tolist()) for ids, a, t, o in rows})
        trainer.close()
    assert found[0] == found[1]
    assert all(len(set(advantages)) > 1 for advantages, _ in found[0].values())


def test_an_episode_that_a_token_budget_cut_is_left_out_whole(tmp_path):
    some = episodes()
    some[1].stop_reason = "max_tokens"
    trainer = scripted(tmp_path, some, mask_truncated_completions=True)
    assert trainer.compute_loss(trainer.model, first_batch(trainer)).item() == pytest.approx(-0.475, abs=1e-6)
    trainer.close()
    settings = CreditSettings(beta_turn=0.5, turn_gamma=0.5, scale_rewards="none")
    flat = [replace(episode, reward=1.0) for episode in episodes()]
    assert not weightless(flat, settings, TurnSignal.PROGRESS)  # at S the two differ by what the turn earned
    assert weightless(flat, replace(settings, beta_turn=0.0), TurnSignal.PROGRESS)


# -- What is odd, and what is refused ---------------------------------------------------------------------------------


def test_an_episode_without_a_turn_takes_part_in_the_batch(tmp_path):
    some = episodes()
    some[0].turns, some[0].reward, some[0].environment = [], None, {}  # its sandbox never opened
    trainer = scripted(tmp_path, some)
    inputs = first_batch(trainer)
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    assert math.isfinite(loss.item())
    assert sorted(len(row) for row in inputs[PIECES]) == [1, 2]
    trainer.close()


def test_pieces_are_shuffled_and_split_with_their_rows_and_stored(tmp_path):
    trainer = long_trainer(tmp_path, steps_per_generation=2, per_device_train_batch_size=4)
    trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    file = io.BytesIO()
    torch.save(trainer._buffered_inputs, file)
    file.seek(0)
    again = torch.load(file, weights_only=True)
    by_reply = {tuple(e.flat().ids): e.prompts() for e in trainer.played[0]}
    assert len(again) == 2
    for batch in again:
        assert len(batch[PIECES]) == 4
        for ids, on, parts in zip(batch["completion_ids"], batch["completion_mask"], batch[PIECES], strict=True):
            prompts = [row[:start].tolist() for row, spans in parts for start, _ in spans]
            assert prompts == by_reply[tuple(ids[on.bool()].tolist())]
    trainer.close()


def test_a_run_that_stopped_inside_a_generation_goes_on_bit_for_bit(tmp_path):
    changes = {"num_iterations": 2, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    found = []
    for name, steps, resume in (("whole", 3, None), ("part", 1, None), ("part", 3, "part/run/checkpoint-1")):
        trainer = long_trainer(tmp_path / name, max_steps=steps, **changes)
        trainer.train(resume_from_checkpoint=resume and str(tmp_path / resume))
        found.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
        trainer.close()
    assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])


def test_completions_are_not_scored_behind_the_wrong_prompt(tmp_path):
    trainer = scripted(tmp_path, episodes())
    inputs = first_batch(trainer)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    with pytest.raises(RuntimeError, match="a prompt of its own"):
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 9)
    broken = copy.deepcopy(episodes())
    flats = [as_completion(e, 0) for e in broken]
    flats[1].ids.pop()
    with pytest.raises(ValueError, match="9 ids of replies, 8 in the completion"):
        pieces_of(broken, flats, 0)
    trainer.close()
