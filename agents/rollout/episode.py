"""One attempt at one task, turn by turn."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agents.chat import ChatTemplate, Conversation
from agents.chat_tools import protocol_of
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling, shrunk
from agents.seeds import derive_seed
from agents.trajectory import FORGED, LOSSES, Trajectory, Turn, setting_of
from envs.conversation import ConversationEnv, StopReason
from envs.episode import CutReply
from envs.wrapping import WrappedConversation
from tasks.task import Task

# -- One episode in progress: its conversation, its environment, and the trajectory it writes -------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at one task.

    Attributes:
        task: The task.
        attempt: 0..K-1 within the task's group.
        seed: Decides every reply together with task, attempt and turn.
    """

    task: Task
    attempt: int
    seed: int


class WaitsFor(StrEnum):
    """What an episode under way waits for, in words that follow "for"."""

    TASK = "its task to be laid out"
    REPLY = "a reply of the policy"
    SANDBOX = "a command or a grade"


@dataclass(frozen=True, slots=True)
class Waiting:
    """An episode that is under way.

    Attributes:
        turn: From 1; `what` it waits for since `seconds`.
    """

    task: str
    attempt: int
    turn: int
    what: WaitsFor
    seconds: float


@dataclass(slots=True)
class Step:
    """What the environment answered, brought back from its thread."""

    observation: str
    reward: float | None
    over: bool
    info: dict[str, Any]
    seconds: float


def lay_out(env: ConversationEnv | WrappedConversation, job: Job) -> Step:
    """Lay the job's task out in an environment."""
    begin = time.perf_counter()
    observation, info = env.reset(seed=job.seed, options={"task": job.task})
    return Step(observation, 0.0, False, info, time.perf_counter() - begin)


@dataclass(slots=True)
class Episode:
    """State of one job while it is played.

    Attributes:
        job: The job; `index` its place in the call's list.
        name: Names the conversation for the policy.
        env: The slot's environment, used by one thread at a time.
        tries: Failures of the machinery so far.
        losses: Sandboxes that were lost in earlier tries; a job that starts over keeps them.
        waits: What it waits for, `since` when on the clock of `time.monotonic`.
        length: Ids so far: prompt, replies and whole observations, whatever a prompt shows of older ones.
    """

    job: Job
    index: int
    name: str
    env: ConversationEnv | WrappedConversation
    template: ChatTemplate
    label: str
    conversation: Conversation = field(init=False)
    trajectory: Trajectory = field(init=False)
    context: list[int] = field(default_factory=list)
    length: int = 0
    anchor: str = ""
    asked: Request | None = None
    reward: float = 0.0
    tries: int = 0
    losses: list[dict[str, Any]] = field(default_factory=list)
    waits: WaitsFor = WaitsFor.TASK
    since: float = 0.0

    def __post_init__(self) -> None:
        """An empty record, ready for `started`."""
        self.restart()

    def restart(self) -> None:
        """Forget what was played: the job starts over."""
        task = self.job.task
        self.conversation = Conversation(self.template)
        self.trajectory = Trajectory(
            task.id, task.content_hash, self.job.attempt, self.job.seed, [], sampling=self.label, family=task.family
        )
        self.trajectory.tokenizer = self.template.fingerprint
        self.context, self.anchor, self.reward = [], "", 0.0
        self._wait_for(WaitsFor.TASK)

    def waiting(self) -> Waiting:
        """What it waits for now; may be asked from another thread."""
        turn, seconds = len(self.trajectory.turns), time.monotonic() - self.since
        turn += self.waits is not WaitsFor.SANDBOX
        return Waiting(self.job.task.id, self.job.attempt, turn, self.waits, seconds)

    def _wait_for(self, what: WaitsFor) -> None:
        self.waits, self.since = what, time.monotonic()

    # -- on the environment's thread ----------------------------------------------------------------------------------

    def reset(self) -> Step:
        """Lay the task out once more."""
        return lay_out(self.env, self.job)

    def step(self, reply: str) -> Step:
        """Take a reply."""
        begin = time.perf_counter()
        observation, reward, terminated, truncated, info = self.env.step(reply)
        return Step(observation, float(reward), terminated or truncated, info, time.perf_counter() - begin)

    def finish(self, reason: StopReason) -> Step:
        """End it for a budget."""
        begin = time.perf_counter()
        reward, info = self.env.finish(reason)
        return Step("", reward, True, info, time.perf_counter() - begin)

    # -- on the engine's thread ---------------------------------------------------------------------------------------

    def started(self, step: Step) -> None:
        """The task is laid out: the conversation begins."""
        if start := getattr(self.env, "start_clock", None):  # others than ours may have no time of their own
            start()
        self.trajectory.environment = setting_of(self.env)
        keep = self.trajectory.keep_observations
        self.trajectory.prompt_ids = self.conversation.start(self.env.system_prompt, step.observation, keep)
        self.length = len(self.trajectory.prompt_ids)
        self.anchor = step.info["anchor"]

    def request(self, sampling: Sampling, max_context: int | None) -> Request | None:
        """The next reply wanted; `None` when neither context nor token budget has room for one any more.

        A reply may use the sampling's cap or the task's, the smaller; near the end of the context, or of the budget,
        what is left there (see `agents.policy.shrunk`).

        Stop texts of the environment are passed on for running text alone, where a policy that ends there and the
        environment that cuts there agree. In a chat they differ: the environment cuts nothing inside a thought or a
        block of code, which may hold two blank lines.

        Raises:
            PolicyError: The task's first message alone fills the context, or the budget.
        """
        turn = len(self.trajectory.turns)
        self._wait_for(WaitsFor.REPLY)
        cap = min(sampling.max_tokens, self.job.task.budget.turn_tokens)
        for limit, used, what, remedy in (
            (max_context, len(self.conversation.ids), "the context", "use a model with a longer context"),
            (sampling.max_episode_tokens, self.length, "an episode", "raise max_episode_tokens"),
        ):
            fits = cap if limit is None else shrunk(cap, limit - used, first=turn == 0)
            if fits is None and turn == 0:
                raise PolicyError(
                    f"task '{self.job.task.id}': its prompt has {used} ids and {what} only {limit}; {remedy}, or leave "
                    "this task out"
                )
            if fits is None:
                self._wait_for(WaitsFor.SANDBOX)
                return None
            cap = fits
        seed = derive_seed(self.job.seed, self.job.task.id, self.job.attempt, turn)
        stops = tuple(getattr(self.env, "stops", ())) if self.env.raw_prompts else ()
        self.asked = Request(
            self.name, self.conversation.ids, seed, max_tokens=cap, first_turn=turn == 0, stops=stops,
            protocol=protocol_of(self.env).name,
        )  # fmt: skip
        return self.asked

    def replied(self, completion: Completion, seconds: float) -> str:
        """Record a reply; returns its text for the environment, marked where the token limit cut it."""
        text = self.conversation.reply(completion.ids, completion.finish)
        self.length += len(completion.ids)
        self._wait_for(WaitsFor.SANDBOX)
        self.trajectory.turns.append(
            Turn(
                index=len(self.trajectory.turns),
                context_ids=self.context,
                ids=completion.ids,
                logprobs=completion.logprobs,
                entropies=completion.entropies,
                forced=completion.forced,
                finish=completion.finish,
                reply=text,
                anchor=self.anchor,
                uncertainty=completion.signal,
                candidates=completion.candidates,
                notes=completion.notes,
                model_seconds=seconds,
                max_logprobs=completion.max_logprobs,
                entropy_bounds=completion.entropy_bounds,
                seed=_used(completion.seed, self.asked.seed if self.asked else None),
                max_tokens=_used(completion.max_tokens, self.asked.max_tokens if self.asked else None),
                uncertainty_bounds=completion.signal_bounds,
                short_ids=self.conversation.short,
            )
        )
        return CutReply(text) if completion.finish is FinishReason.LENGTH else text

    def stepped(self, step: Step) -> None:
        """Record what the environment answered to the last reply."""
        turn = self.trajectory.turns[-1]
        turn.answered(step.observation, step.info)
        turn.sandbox_seconds = step.seconds
        if step.over:
            self.ended(step)
        else:
            assert step.reward is not None
            self.reward += step.reward
            self.anchor = step.info["anchor"]
            older = None if self.trajectory.keep_observations is None else self.env.summary(step.observation)
            self.context = self.conversation.observe(step.observation, older)
            self.length += len(self.context)

    def ended(self, step: Step) -> None:
        """Record the grade."""
        info, trajectory = step.info, self.trajectory
        assert step.reward is not None
        trajectory.graded(self.reward + step.reward, info)
        if forged := info.get(FORGED, 0) + self.conversation.forged:
            trajectory.notes[FORGED] = forged
        self._note(self.losses + info.get(LOSSES, []))

    def failed(self) -> None:
        """A try failed: keep what its environment says about lost sandboxes, before the next one begins."""
        self.tries += 1
        self.losses += getattr(self.env, LOSSES, [])

    def broken(self, error: BaseException) -> None:
        """Record that the machinery failed: no reward."""
        trajectory = self.trajectory
        self._note(self.losses)
        trajectory.stop_reason = StopReason.INFRASTRUCTURE.value
        trajectory.reward = trajectory.passed = trajectory.rate = None
        trajectory.assertions = []
        trajectory.error = f"{type(error).__name__}: {error}"

    def _note(self, losses: list[dict[str, Any]]) -> None:
        if losses:
            self.trajectory.notes[LOSSES] = losses


def _used(changed: int | None, asked: int | None) -> int | None:
    """What a reply was sampled with: a wrapper may have changed what was asked for."""
    return asked if changed is None else changed
