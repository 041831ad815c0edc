"""One call of the rollout engine while it is played: who is in which slot, what has ended, and what starts over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from agents.chat import ChatTemplate
from agents.chat_tools import protocol_of, template_of
from agents.policy import Policy, Sampling, TaskAware
from agents.rollout.environments import Environments
from agents.rollout.episode import Episode, Job, Step
from agents.rollout.progress import RolloutState, Timing
from agents.trajectory import Trajectory
from envs.conversation import ConversationEnv
from envs.wrapping import WrappedConversation
from sandboxes.sandbox import SandboxError
from tasks.assertions.grade import GradeError

RETRIES = 1
"""How often a job starts over after the machinery failed."""
MACHINERY = (SandboxError, GradeError)
"""What an environment's call raises when the machinery failed; anything else is a defect."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An episode that had begun when a call returned without it: it goes on in the next call.

    Attributes:
        episode: As it stands.
        future: The call of its environment that is under way, or that came back to nobody.
        then: What takes the answer.
    """

    episode: Episode
    future: Future[Step]
    then: Callable[[Step], None]


@dataclass(slots=True)
class Run:
    """One call while it runs.

    Attributes:
        jobs: What is played, in the order in which slots take it.
        sampling: Decode settings, and `asked` as requests ask for: with the policy's own cap on a reply.
        done: The trajectories that have ended, in the jobs' order.
        begin: When the call began, on the clock of `time.perf_counter`.
        label: Decode settings for records.
        own_ids: Whether ids are the model's own, so that they can be counted.
        slots: Episodes at once; `ahead` tasks are laid out before a slot is free for them.
        lane: Its place among calls that are played at the same time.
        live: Episodes under way, by slot.
        spent: Seconds of the engine's thread.
        next: The next job in line.
        ended: Episodes that are over; `lost` of them the machinery ended, `retries` started over for it.
        enough: Asked with what has ended: whether the call may return without the others.
        unfinished: Of the call before, which stand first among the jobs; in the end what this call leaves.
    """

    jobs: Sequence[Job]
    sampling: Sampling
    asked: Sampling
    on_episode: Callable[[Trajectory], None] | None
    on_round: Callable[[RolloutState], None] | None
    done: list[Trajectory | None]
    begin: float
    label: str
    own_ids: bool
    slots: int
    ahead: int
    lane: int = 0
    live: dict[int, Episode] = field(default_factory=dict)
    spent: float = 0.0
    next: int = 0
    ended: int = 0
    lost: int = 0
    retries: int = 0
    timing: Timing = field(default_factory=Timing)
    enough: Callable[[Sequence[Trajectory | None]], bool] | None = None
    unfinished: list[Unfinished] = field(default_factory=list)

    def state(self) -> RolloutState:
        """For those who watch."""
        tokens = self.timing.sampled_tokens if self.own_ids else None
        seconds = time.perf_counter() - self.begin
        return RolloutState(self.ended, len(self.jobs), self.timing.turns, tokens, seconds, self.lost, self.retries)


@dataclass
class Player:
    """What both modes do with an episode: begin it, start it over, end it.

    Attributes:
        policy: Who acts.
        environments: Where.
        template: Of the policy's tokenizer.
        max_context: Longest conversation, in ids, replies included.
        check: Raises where another thread has closed the engine meanwhile.
    """

    policy: Policy
    environments: Environments
    template: ChatTemplate
    max_context: int | None
    check: Callable[[], None]
    _others: dict[tuple[bool, str], ChatTemplate] = field(default_factory=dict)
    """Templates of environments that speak otherwise."""

    def __post_init__(self) -> None:
        """Look once at what the policy can do."""
        self._told = self.policy.begin if isinstance(self.policy, TaskAware) else None

    def wake(self) -> None:
        """From another thread: look whether the engine was closed."""

    def take(self, run: Run, slot: int) -> tuple[Episode, Future[Step]]:
        """Put the next job in line into a slot; its task is being laid out, or has been."""
        job, index = run.jobs[run.next], run.next
        run.next += 1
        opening = self.environments.open(job, run.lane)
        template = self._template(opening.env)
        name = f"{index}:{job.task.id}:{job.attempt}" + (f"/{run.lane}" if run.lane else "")
        while any(episode.name == name for episode in run.live.values()):  # an unfinished one of another call
            name += "'"
        run.live[slot] = episode = Episode(job, index, name, opening.env, template, run.label)
        self.begin(episode)
        return episode, opening.step

    def _template(self, env: ConversationEnv | WrappedConversation) -> ChatTemplate:
        """How an environment's messages become ids: as one running text, with tools, or as a plain chat."""
        protocol = protocol_of(env)
        if not env.raw_prompts and not protocol.tools:
            return self.template
        key = env.raw_prompts, protocol.name
        if key not in self._others:
            self._others[key] = template_of(self.policy.tokenizer, self.policy.eos_ids, protocol, raw=key[0])
        return self._others[key]

    def play(self, runs: Sequence[Run]) -> None:
        """Play every job of every call."""
        raise NotImplementedError

    def begin(self, episode: Episode) -> None:
        """Tell a policy that wants to know of the task."""
        if self._told is not None:
            self._told(episode.name, episode.job.task)

    def failed(self, run: Run, slot: int, error: BaseException) -> bool:
        """The machinery failed: whether the job starts over; else its episode has ended without a reward."""
        episode = run.live[slot]
        episode.failed()
        if episode.tries > RETRIES:
            self.broken(run, slot, error)
            return False
        run.retries += 1
        self.policy.forget([episode.name])
        episode.restart()
        self.begin(episode)
        return True

    def broken(self, run: Run, slot: int, error: BaseException) -> None:
        """An episode has ended without a reward."""
        run.live[slot].broken(error)
        self.over(run, slot)

    def all_broken(self, run: Run, error: BaseException) -> None:
        """So has every episode under way."""
        for slot in list(run.live):
            self.broken(run, slot, error)

    def over(self, run: Run, slot: int) -> None:
        """An episode has ended: its slot and its environment are free."""
        episode = run.live.pop(slot)
        self.policy.forget([episode.name])
        self.environments.give_back(episode.env)
        run.done[episode.index] = episode.trajectory
        run.ended += 1
        run.lost += episode.trajectory.reward is None
        if run.on_episode is not None:
            run.on_episode(episode.trajectory)


def capped(policy: Policy, sampling: Sampling) -> Sampling:
    """The settings with the policy's own cap on a reply, where it has one (a wrapper's `cap(sampling)`)."""
    cap = getattr(policy, "cap", None)
    return sampling if cap is None else replace(sampling, max_tokens=int(cap(sampling)))
