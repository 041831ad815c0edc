"""Prompts that show the last N observations in full and older ones as a line: ids, records, replay, long tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agents.__main__ import main
from agents.chat import ChatError, ChatTemplate, Conversation, Exchanged, shown
from agents.fieldnotes import from_record, to_record
from agents.models.card import ModelCard
from agents.policies.scripted import ByteTokenizer, OraclePolicy, ReplayPolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, FinishReason, Request, Sampling
from agents.replay import replay
from agents.rollout import Job, RolloutEngine
from agents.trajectory import RecordError, Trajectory, env_for, setting_of, write_jsonl
from envs import ClawGymEnv
from envs.conversation import Exchange
from sandboxes import probe
from tasks.sources import load_tasks
from tests.agents.fakes import FakeEnv, task
from tests.agents.toys import full_forward, model, tokenizer

LONG = "and so on " * 60
TURNS = 32


class Talkative(FakeEnv):
    """Answers each command with much text."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(word=f"ok {LONG}\n", **settings)


def long_task(turns: int = TURNS) -> Any:
    return task(budget={"max_turns": turns + 2}, oracle={"commands": ["echo two"] * turns})


class Watching(OraclePolicy):
    """Keeps the prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[list[int]] = []

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.prompts += [list(request.prompt_ids) for request in requests]
        return super().complete(requests, sampling)


def play(policy: Any, keep: int | None, max_context: int | None = None, turns: int = TURNS) -> Trajectory:
    jobs = [Job(long_task(turns), 0, 7)]
    with RolloutEngine(
        policy, lambda: Talkative(keep_observations=keep), slots=1, workers=1, max_context=max_context
    ) as engine:
        [trajectory] = engine.run(jobs, Sampling(0.0, 200)).trajectories
    return trajectory


# -- Ids --------------------------------------------------------------------------------------------------------------


def test_the_last_observations_are_shown_in_full_and_older_ones_as_lines() -> None:
    past = [Exchanged([10], [11, 11, 11], [12]), Exchanged([20], [21], None), Exchanged([30], [31, 31], [32])]
    assert shown([1, 2], [], 1) == [1, 2]
    assert shown([1, 2], past[:1], 1) == [1, 2, 10, 11, 11, 11]
    assert shown([1, 2], past, 1) == [1, 2, 10, 12, 20, 21, 30, 31, 31]
    assert shown([1, 2], past, 2) == [1, 2, 10, 12, 20, 21, 30, 31, 31]
    assert shown([1, 2], past, 3) == shown([1, 2], past, None) == [1, 2, 10, 11, 11, 11, 20, 21, 30, 31, 31]


@pytest.mark.parametrize("finish", list(FinishReason))
def test_a_conversation_rebuilds_its_prompt_from_ids_that_were_encoded_once(finish: FinishReason) -> None:
    tokens = tokenizer()
    template = ChatTemplate(tokens)
    talk = Conversation(template)
    prompt = talk.start("be good", "write hello", keep=1)
    assert talk.ids == prompt and talk.short is None
    ended = finish is FinishReason.STOP
    # Not what the tokenizer would make of the text: it stays as it was sampled.
    replies = [[tokens.encode(c)[0] for c in "hello"] + ([tokens.eos_token_id] if ended else []) for _ in range(3)]
    fulls, shorts = [], []
    for number, reply in enumerate(replies):
        talk.reply(reply, finish)
        fulls.append(talk.observe(f"observation {number}: {LONG}", f"observation {number}"))
        shorts.append(template.following(f"observation {number}", ended=ended, turn=number))
        assert talk.short == shorts[number]
        assert fulls[number] == template.following(f"observation {number}: {LONG}", ended=ended, turn=number)
    assert talk.ids == prompt + replies[0] + shorts[0] + replies[1] + shorts[1] + replies[2] + fulls[2]
    # A line that is no shorter gains nothing.
    talk.reply(replies[0], finish)
    whole = talk.observe("ok", "a line that says much more than that")
    assert talk.short is None and talk.ids[-len(whole) :] == whole
    with pytest.raises(ChatError, match="needs the line"):
        talk.reply(replies[0], finish)
        talk.observe("ok")
    talk.start("", "anew")
    talk.reply(replies[0], finish)
    talk.observe(LONG)
    assert talk.short is None and len(talk.ids) > len(LONG) / 10


# -- Episodes ---------------------------------------------------------------------------------------------------------


def test_a_task_of_32_turns_plays_on_where_append_only_has_no_room_left() -> None:
    limit = 9000
    policy = Watching()
    grown = play(policy, None, limit)
    assert (grown.stop_reason, grown.passed) == ("max_tokens", True) and len(grown.turns) < 16  # graded as it stands
    policy = Watching()
    episode = play(policy, 2, limit)
    assert (episode.stop_reason, episode.passed, len(episode.turns)) == ("submitted", True, TURNS + 1)
    assert episode.prompts() == policy.prompts
    assert max(map(len, policy.prompts)) + 200 < limit < len(play(Watching(), None).prompts()[-1])
    text = policy.tokenizer.decode(policy.prompts[-1])
    assert text.count(LONG.strip()) == 2 and text.count("[cut]") == TURNS - 2
    assert text.count("echo two\n```") == TURNS  # every reply is there
    assert episode.environment["keep_observations"] == 2


class Rambling(FakeEnv):
    """Says much to whatever it is told, and in short only how long the reply was."""

    def _exchange(self, reply: str) -> Exchange:
        return replace(super()._exchange(reply), observation=f"{LONG[:60]}: {len(reply)}")

    def summary(self, observation: str) -> str:
        return observation.rpartition(": ")[2]


def test_log_probabilities_are_those_behind_each_prompt_also_with_a_cropped_cache() -> None:
    jobs = [Job(long_task(6), attempt, 3) for attempt in range(3)]
    policy = TransformersPolicy(model("gqa"), tokenizer())
    with RolloutEngine(policy, lambda: Rambling(keep_observations=1), slots=2, workers=1) as engine:
        played = engine.run(jobs, Sampling(1.0, 8)).trajectories
    for episode in played:
        assert [turn.short_ids is not None for turn in episode.turns] == [False] + [True] * 7
        for prompt, turn in zip(episode.prompts(), episode.turns, strict=True):
            want = full_forward(model("gqa"), prompt, turn.ids, 1.0)[0].tolist()
            assert turn.logprobs == pytest.approx(want, abs=1e-5)


def test_a_prompt_that_is_recorded_is_the_one_that_is_replayed() -> None:
    policy = Watching()
    episode = play(policy, 3)
    again = play(ReplayPolicy(episode), 3)
    assert again.prompts() == episode.prompts() and again.passed


# -- Records ----------------------------------------------------------------------------------------------------------


def test_records_keep_both_forms_and_those_of_append_only_episodes_are_as_before() -> None:
    episode, grown = play(Watching(), 2), play(Watching(), None)
    record = json.loads(json.dumps(episode.to_json()))
    again = Trajectory.from_json(record)
    assert again == episode and again.prompts() == episode.prompts()
    turns = record["turns"]
    assert "short_ids" not in turns[0] and len(turns[1]["short_ids"]) < len(turns[1]["context_ids"])
    assert not any("short_ids" in turn for turn in grown.to_json()["turns"])
    assert "keep_observations" not in grown.environment
    whole = grown.prompt_ids + grown.flat().ids
    assert [whole[: len(prompt)] for prompt in grown.prompts()] == grown.prompts()
    flat = episode.flat()
    assert flat.ids == [token for turn in episode.turns for token in turn.ids] and all(flat.mask)
    for wrong in (0, True, "2"):
        with pytest.raises(RecordError, match=r"environment.keep_observations: is .*, must be a whole number"):
            Trajectory.from_json({**record, "environment": {**record["environment"], "keep_observations": wrong}})
    with pytest.raises(RecordError, match=r"turns\[1\].short_ids: environment.keep_observations does not say"):
        Trajectory.from_json({**record, "environment": {}})


def test_a_format_without_a_place_for_such_prompts_gets_the_text_alone() -> None:
    episode = play(Watching(), 2)
    assert from_record(to_record(episode)).text_only
    assert not from_record(to_record(play(Watching(), None))).text_only


def test_show_says_how_long_prompts_were(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "episodes.jsonl"
    with open(path, "w") as file:
        write_jsonl([play(Watching(), 2)], file)
    assert main(["show", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "with the last 2 observations in full" in said and "of context as a line" in said


@pytest.mark.skipif(not probe("bubblewrap").ok, reason="bubblewrap does not work here")
def test_an_episode_is_played_again_with_its_lines() -> None:
    [shell] = load_tasks("generated:quickstart?n=1&seed=3")
    commands = ["seq 200", "ls -la", "seq 300; exit 3", "cat nothing"]
    shell = shell.model_copy(update={"oracle": shell.oracle.model_copy(update={"commands": tuple(commands)})})
    env = lambda: ClawGymEnv([shell], sandbox="bubblewrap", keep_observations=1, max_turns=8)  # noqa: E731
    with RolloutEngine(OraclePolicy(), env, slots=1, workers=1) as engine:
        [episode] = engine.run([Job(shell, 0, 0)], Sampling(0.0, 300)).trajectories
    assert [turn.short_ids is not None for turn in episode.turns] == [False, True, True, True, False]
    template = ChatTemplate(ByteTokenizer(), [ByteTokenizer().eos_token_id])
    result = replay(episode, shell, template=template, sandbox="bubblewrap")
    assert result.same_grade and result.ids_compared and result.differences == []
    assert result.now.prompts() == episode.prompts()
    assert "exit code: 3 stdout: 1 2 3 4" in ByteTokenizer().decode(episode.prompts()[4])
    episode.turns[2].short_ids = episode.turns[2].short_ids[:-1]  # type: ignore[index]
    result = replay(episode, shell, template=template, sandbox="bubblewrap")
    assert [(one.turn, one.what) for one in result.differences] == [(2, "short_ids")]


def test_settings_of_an_environment_make_it_again() -> None:
    shell = load_tasks("library")[0]
    made = ClawGymEnv([shell], task=shell.id, keep_observations=3, sandbox="local")
    made._task = shell
    again = env_for(shell, setting_of(made), "local")
    assert again.keep_observations == 3 and again.prompt_hash == made.prompt_hash
    assert ModelCard().told() == {"prompt_style": "standard"}
    assert ModelCard(keep_observations=3).told()["keep_observations"] == 3
