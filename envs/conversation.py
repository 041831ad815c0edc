"""The turn loop that all environments share: seeds, turns, budgets, grades, rewards, `info`.

A subclass says what a task lays out and what a reply does; everything that must be equal everywhere stands here.

Failure model
    * What the agent does wrong is an observation, never an exception.
    * What the agent breaks fails: a check that broke on what it made (`broke` in its record), and an episode whose
      sandbox it ended twice (stop reason `lost`, see `envs.recovery`). `agent_errors="error"` counts both as errors.
    * `SandboxError` (the machinery failed) and `GradeError` (an assertion could not be decided) leave `reset`, `step`
      and `finish` as exceptions. The episode is over and has no reward; the next `reset` starts afresh.
    * `ResetNeeded`: a call in the wrong order (before the first reset, after the end).
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from envs.actions import ActionKind
from envs.episode import AgentErrors, Ending, Exchange, ExitCode, LostTwice, Phase, StopReason, choice, time_limit
from envs.prompts import PromptStyle
from envs.prompts import prompt_style as named_style
from envs.protocol import DEFAULT_PROTOCOL, PROTOCOLS, Protocol
from envs.rewards import BaselineError, RewardKind, reward_rule
from envs.spaces import ACTION_LENGTH, OBSERVATION_LENGTH, UnicodeText
from sandboxes.sandbox import JudgeIsolation
from tasks.assertions.base import Outcome
from tasks.assertions.grade import Grade, GradeError, grade
from tasks.judged_in import check_network
from tasks.model import nearest
from tasks.task import Task

__all__ = ["ConversationEnv", "Exchange", "Phase", "StopReason"]


_SAMPLES = ("ok", "exit code: 2\nstdout:\n" + "some output\n" * 40 + "stderr:\nsome error", "Nothing was run.\n" * 20)
"""Observations whose lines enter the hash of the prompts."""


class ConversationEnv(gymnasium.Env[str, str]):
    """A task carried out by turns: observation and action are text.

    Subclasses implement `_lay`, `_exchange`, `_outcome`, `_anchor` and `_release`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}
    default_tasks: ClassVar[str | None] = None
    """Where tasks come from if nothing is said."""
    judged_by: ClassVar[str | None] = None
    """Kind of assertion that judges the answer this environment asks for: in a mix it carries such tasks out."""
    protocol: Protocol = PROTOCOLS[DEFAULT_PROTOCOL]
    """How replies say what to do, where that can be chosen (shell tasks)."""
    may_revise: ClassVar[bool] = False
    """Whether an answer may be revised. Where only one is right, saying that it is wrong would let the agent guess."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        task: str | Task | None = None,
        max_turns: int | None = None,
        reward: str | RewardKind = RewardKind.SHAPED,
        turn_penalty: float = 0.2,
        subtract_baseline: bool = False,
        agent_errors: str | AgentErrors = AgentErrors.FAIL,
        allow_exposed_judges: bool = False,
        allow_shared_judges: bool = False,
        verifier_network: str | None = None,
        prompt_style: str | PromptStyle = "standard",
        keep_observations: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Prepare an environment; nothing is opened before the first `reset`.

        Args:
            tasks: What `reset` draws from.
            task: A task (or the id of one of `tasks`) for every episode.
            max_turns: Turn budget; the default is each task's own.
            reward: `shaped`, `binary`, `delta`, or one of your own (see `envs.rewards`).
            turn_penalty: What all turns together cost under `shaped`.
            subtract_baseline: Take the rate above that of doing nothing.
            agent_errors: What counts where the agent kept itself from being judged: `fail`, or `error` (no reward).
            allow_exposed_judges: Play tasks whose judge runs code of the agent that nothing keeps apart from it.
            allow_shared_judges: Play tasks whose judge runs beside processes that the agent left.
            verifier_network: Network of the docker engine that verifiers have which need one; the agent never has it.
            prompt_style: `standard`, `compact`, or a `PromptStyle`.
            keep_observations: In the prompt of a reply the last so many observations stand in full, and of each older
                one its `summary`; the default shows all of them in full. `reset` and `step` return the same either way:
                it is a rule for who writes the prompts (`agents.chat`).
            render_mode: `ansi` makes `render` return the conversation so far.

        Raises:
            ValueError: A setting is not among its choices, or has no effect.
        """
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}: an episode needs at least one turn")
        if keep_observations is not None and (type(keep_observations) is not int or keep_observations < 1):
            raise ValueError(
                f"keep_observations is {keep_observations!r}: a whole number of at least 1, or None, which shows every "
                "observation in full"
            )
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode '{render_mode}' is unknown: use 'ansi' or leave it out")
        self.observation_space = UnicodeText(OBSERVATION_LENGTH)
        self.action_space = UnicodeText(ACTION_LENGTH)
        self.render_mode = render_mode
        self.style = self._style(prompt_style)
        self.keep_observations = keep_observations
        self.rule = reward_rule(reward, turn_penalty, subtract_baseline)
        self.agent_errors: AgentErrors = choice(AgentErrors, agent_errors, "agent_errors")
        self.allow_exposed_judges = allow_exposed_judges
        self.allow_shared_judges = allow_shared_judges
        self.verifier_network = None if verifier_network is None else check_network(verifier_network)
        self._tasks = tuple(tasks)
        self._by_id = {item.id: item for item in self._tasks}
        self._fixed = None if task is None else self._find(task)
        self._max_turns = max_turns
        self.step_limit: int | None = None
        """Most turns, whatever the budget, for who makes this environment without a `TimeLimit` around it."""
        self._limit: int | None = None
        self._phase = Phase.NEW
        self._task: Task | None = None
        self._transcript: list[str] = []
        """First observation, reply, observation, reply, ..."""
        self._untouched_rates: dict[str, float] = {}
        """By content hash."""

    # -- for callers ------------------------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The task of the current episode (or of the last one)."""
        if self._task is None:
            raise ResetNeeded("there is no task before the first reset()")
        return self._task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What `reset` draws from."""
        return self._tasks

    @property
    def max_turns(self) -> int:
        """Turn budget of the current episode: what was asked for or the task's own, cut by Gymnasium's time limit."""
        budget = self._max_turns or self.task.budget.max_turns
        return budget if self._limit is None else min(budget, self._limit)

    @property
    def own_max_turns(self) -> int:
        """The turn budget that was asked for; 0 where each task has its own."""
        return self._max_turns or 0

    @property
    def system_prompt(self) -> str:
        """The system message for the current task; empty where the style has none."""
        return self.style.system(self._shown_task())

    @property
    def raw_prompts(self) -> bool:
        """The messages are one running text for a base model; no chat template belongs around them."""
        return self.style.raw

    @property
    def prompt_hash(self) -> str:
        """16 hex digits that change whenever what the environment says to the agent changes, older observations too."""
        if self.keep_observations is None:
            return self.style.hash()
        lines = [self.summary(text) for text in _SAMPLES]
        facts = json.dumps([self.style.hash(), self.keep_observations, lines])
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def summary(self, observation: str) -> str:
        """The line that stands for an observation which is not among the last `keep_observations` any more.

        It depends on the text alone, so that a replay shows the same. Override it to say more, or something else.
        """
        return self.style.line(observation)

    @property
    def losses(self) -> list[dict[str, Any]]:
        """Sandboxes that were lost in this episode, as `envs.recovery.Loss` records them, whatever became of it."""
        return []

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """Why this environment cannot carry out a task, in words that follow its id; `None` where it can."""
        return None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Any integer from 0. It alone decides which task is drawn: equal seeds, equal episodes. Without it a
                seed is drawn (from the last seed given, if any) and recorded in `info["seed"]`.
            options: `{"task": id or Task}` chooses the task of this episode.

        Returns:
            The task as a user message, and `info`.

        Raises:
            SandboxError: The workspace could not be laid out.
            GradeError: The reward needs the grade at the start, and there is none.
            ValueError: An option or task id is unknown.
        """
        self._choose(seed, options)
        assert self._task is not None
        self._turns = 0
        self._final: str | None = None
        self._grade: Grade | None = None
        self._stop: StopReason | None = None
        self._lost: LostTwice | None = None
        self._malformed: Counter[str] = Counter()
        self._forged = 0
        self._start_rate: float | None = None
        self._last_rate: float | None = None
        with self._guard():
            observation = self._lay(self._task)
            self._transcript = [observation]
            self._forged = self.style.forged(observation)
            if len(observation) > OBSERVATION_LENGTH:
                raise ValueError(
                    f"task '{self._task.id}': its first message has {len(observation)} characters, more than the "
                    f"{OBSERVATION_LENGTH} that an observation may have; shorten the intent"
                )
            if self.rule.needs_start:
                self._start_rate = self._last_rate = self._untouched(self._task)
                try:
                    self.rule.above(self._start_rate, self._start_rate)
                except BaselineError as error:
                    raise BaselineError(f"task '{self._task.id}': {error}") from None
        self._phase = Phase.RUNNING
        self.start_clock()
        return observation, self._info(None)

    def start_clock(self) -> None:
        """The time of the episode (`budget.episode_seconds`) begins now, long after `reset` perhaps."""
        self._began = time.monotonic()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one reply.

        Returns:
            Observation, reward, terminated (the agent submitted), truncated (the turns or the time of the episode are
            spent), `info`. Never both: a submission on the last turn is a submission. An episode that ends as `lost` is
            truncated.

        Raises:
            SandboxError: The machinery failed. There is no reward.
            GradeError: The episode could not be graded. There is no reward.
            ResetNeeded: No episode is running.
        """
        self._running("step")
        if isinstance(action, Ending):
            reward_at_end, info = self.finish(action.reason)
            return "", reward_at_end or 0.0, False, True, info
        if not isinstance(action, str):
            raise TypeError(f"a reply is text, not {type(action).__name__}")
        with self._guard():
            try:
                exchange = self._exchange(action)
            except LostTwice as lost:
                self._lost = lost
                exchange = Exchange("", ActionKind.COMMAND if lost.command else ActionKind.ANSWER, command=lost.command)
            self._transcript += [action, exchange.observation]
            self._forged += self.style.forged(exchange.observation)
            self._turns += 1
            if exchange.malformed is not None:
                self._malformed[exchange.malformed.value] += 1
            terminated = exchange.final_message is not None
            spent = StopReason.MAX_TURNS if self._turns >= self.max_turns else self._out_of_time()
            truncated = not terminated and spent is not None
            if self._lost is not None:
                reward = self._end(StopReason.LOST)
            elif terminated:
                self._final = exchange.final_message
                reward = self._end(StopReason.SUBMITTED)
            elif spent is not None:
                reward = self._end(spent)
            else:
                reward = self._progress()
            if self._lost is not None:
                terminated, truncated = False, True
        return exchange.observation, reward, terminated, truncated, self._info(exchange)

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """End the episode for a budget that only the caller knows.

        Args:
            reason: `max_tokens` (or `max_turns`) grades the workspace as it stands. `infrastructure` ends the episode
                without a grade; it may follow an error that `step` raised.

        Returns:
            The reward (under `delta`: of what has changed since the last turn; for `infrastructure` `None`) and `info`.

        Raises:
            SandboxError, GradeError: As in `step`.
            ResetNeeded: There is no episode to end.
            ValueError: `submitted` and `lost` are the agent's doing, not the caller's to say.
        """
        why: StopReason = choice(StopReason, reason, "stop reason")
        if why in (StopReason.SUBMITTED, StopReason.LOST):
            raise ValueError(f"finish() is for budgets: only what the agent does can end an episode as '{why}'")
        if why is StopReason.INFRASTRUCTURE and self._phase in (Phase.RUNNING, Phase.FAILED):
            self._phase, self._stop = Phase.OVER, why
            return None, self._info(None)
        self._running("finish")
        with self._guard():
            reward = self._end(why)
        return reward, self._info(None)

    def render(self) -> str | None:
        """The conversation so far, for `render_mode="ansi"`."""
        if self.render_mode is None:
            return None
        names = ("environment", "agent")
        return "\n\n".join(f"[{names[i % 2]}]\n{text}" for i, text in enumerate(self._transcript))

    def close(self) -> None:
        """Free what is held. Idempotent; a later `reset` opens again."""
        self._phase = Phase.CLOSED
        self._release()

    def abort(self) -> None:
        """From any thread: what runs in the call under way ends at once, and the call fails soon. Then `close`."""

    # -- for subclasses ---------------------------------------------------------------------------------------------

    def _judge_isolation(self) -> JudgeIsolation:
        """Whether the judge of this episode was out of reach of the agent's programs. One that runs none is."""
        return JudgeIsolation.FULL

    @abstractmethod
    def _lay(self, task: Task) -> str:
        """Lay the task out; return the first observation."""

    @abstractmethod
    def _exchange(self, reply: str) -> Exchange:
        """Do what the reply asks for."""

    @abstractmethod
    def _outcome(self) -> Outcome:
        """The state now, with `self._final` as the final message."""

    @abstractmethod
    def _anchor(self) -> str:
        """The state before the next turn (see `envs.rewards`)."""

    @abstractmethod
    def _release(self) -> None:
        """Free what is held; called by `close` and after a failure. Idempotent, and must not raise."""

    def _conversation(self) -> tuple[dict[str, object], ...]:
        """The conversation so far as records of `role` and `content`, for `Outcome.transcript`."""
        roles = ("user", "assistant")
        said = self._transcript if self._transcript[-1] else self._transcript[:-1]  # nothing answers a submission
        return tuple({"role": roles[i % 2], "content": text} for i, text in enumerate(said))

    def _shown_task(self) -> Task:
        """The task with the turn budget that holds here, for prompts."""
        if self.max_turns == self.task.budget.max_turns:
            return self.task
        budget = self.task.budget.model_copy(update={"max_turns": self.max_turns})
        return self.task.model_copy(update={"budget": budget})

    def _style(self, style: str | PromptStyle) -> PromptStyle:
        """The style that a setting names.

        Raises:
            ValueError: There is none of that name here.
        """
        return named_style(style)

    def _choose(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Set the task and the seed of the next episode."""
        chosen = self._option(options)
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
            draw = seeding.np_random(seed)[0]
        else:
            draw = self.np_random
        self._seed = seed
        self._task = chosen or self._fixed or self._draw(int(draw.integers(max(len(self._tasks), 1))))
        self._limit = min(filter(None, (self.step_limit, time_limit(self))), default=None)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _out_of_time(self) -> StopReason | None:
        """`max_seconds` once the wall time since `start_clock`, or the end of `reset`, is more than the task allows.

        It is looked at after each turn, so that a turn that began in time is the last one and counts as any other. The
        end pays what a submission in that turn would pay.
        """
        seconds = self.task.budget.episode_seconds
        if seconds is None or time.monotonic() - self._began - self._uncounted() < seconds:
            return None
        return StopReason.MAX_SECONDS

    def _uncounted(self) -> float:
        """Seconds of this episode that are not the agent's."""
        return 0.0

    def _end(self, reason: StopReason) -> float:
        """Grade, and give the reward of the last turn."""
        try:
            done = self._graded() if self._lost is None else self._failed_by(self._lost)
        except LostTwice as lost:
            done, self._lost = self._failed_by(lost), lost
        if self._lost is not None:
            reason = StopReason.LOST
        assert done.rate is not None  # `require` saw to it
        if self.rule.needs_every_turn:
            reward = self._step_to(done.rate)
        else:
            reward = self.rule.final(
                rate=done.rate,
                passed=done.passed,
                turns=self._turns,
                max_turns=self.max_turns,
                baseline=self._start_rate,
            )
        self._grade, self._stop, self._phase = done, reason, Phase.OVER
        return reward

    def _failed_by(self, lost: LostTwice) -> Grade:
        """The grade of an episode of which nothing is left that could be judged."""
        self._release()
        return Grade(tuple(item.broken(str(lost)) for item in self.task.assertions)).require()

    def _progress(self) -> float:
        """Reward of a turn that is not the last. Graders run only at the end, and give what has changed until then."""
        if not self.rule.needs_every_turn or not all(item.on_files for item in self.task.assertions):
            return 0.0
        return self._step_to(self._rate())

    def _untouched(self, task: Task) -> float:
        """The rate of the workspace as the task lays it.

        What a grader's command leaves behind is no place to start from, so the task is laid out again after one; its
        rate is measured once.
        """
        if all(item.on_files for item in task.assertions):
            return self._rate()
        rate = self._untouched_rates.get(task.content_hash)
        if rate is None:
            rate = self._untouched_rates[task.content_hash] = self._rate()
            self._lay(task)
        return rate

    def _step_to(self, rate: float) -> float:
        assert self._last_rate is not None  # reset measured it
        reward = self.rule.change(self._last_rate, rate, self._start_rate)
        self._last_rate = rate
        return reward

    def _graded(self) -> Grade:
        try:
            done = grade(self.task, self._outcome())
            return (done.with_errors() if self.agent_errors is AgentErrors.ERROR else done).require()
        except GradeError as error:
            raise GradeError(f"task '{self.task.id}' could not be graded: {error}") from error

    def _rate(self) -> float:
        rate = self._graded().rate
        assert rate is not None
        return rate

    def _info(self, exchange: Exchange | None) -> dict[str, Any]:
        """`info`: JSON-able, the same keys at every call; three more at the end."""
        ok = self._phase in (Phase.RUNNING, Phase.OVER) and self._stop is not StopReason.INFRASTRUCTURE
        code = exchange.exit_code if exchange else None
        info: dict[str, Any] = {
            "task_id": self.task.id,
            "task_hash": self.task.content_hash,
            "seed": self._seed,
            "turn": self._turns,
            "action": exchange.action.value if exchange else None,
            "command": exchange.command if exchange else None,
            "exit_code": None if code is None else ExitCode(code),
            "timed_out": bool(exchange and exchange.timed_out),
            "signal": exchange.signal if exchange else None,
            "anchor": self._anchor() if ok else "",
            "malformed": dict(self._malformed),
            "stop_reason": self._stop.value if self._stop else None,
        }
        if self.losses:
            info["losses"] = self.losses
        if self._forged:
            info["forged_headers"] = self._forged
        if self._grade is not None:
            info["assertions"] = [result.record() for result in self._grade.results]
            info["passed"] = self._grade.passed
            info["rate"] = self._grade.rate
            info["judge_isolation"] = self._judge_isolation().value
        return info

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Mark the episode as failed when the body raises."""
        try:
            yield
        except BaseException as error:
            self._phase = Phase.FAILED
            if not isinstance(error, GradeError | BaselineError):
                # The sandbox may be half-way through an answer (a broken pipe, Ctrl-C): the next episode has a new one.
                self._release()
            raise

    def _running(self, call: str) -> None:
        if self._phase is Phase.RUNNING:
            return
        why = {
            Phase.NEW: "no episode has started",
            Phase.OVER: f"the episode is over ({self._stop.value if self._phase is Phase.OVER and self._stop else ''})",
            Phase.FAILED: "the episode broke off with an error",
            Phase.CLOSED: "the environment is closed",
        }[self._phase]
        raise ResetNeeded(f"{call}(): {why}; call reset() first")

    def _option(self, options: dict[str, Any] | None) -> Task | None:
        for key in options or {}:
            if key != "task":
                raise ValueError(f"reset() knows no option '{key}': the only option is 'task' (an id or a Task)")
        task = (options or {}).get("task")
        return None if task is None else self._find(task)

    def _find(self, task: str | Task) -> Task:
        if isinstance(task, Task):
            return task
        if task not in self._by_id:
            guess = nearest(str(task), self._by_id)
            some = ", ".join(list(self._by_id)[:5])
            hint = f"did you mean '{guess}'?" if guess else f"there are {len(self._by_id)}, such as {some}"
            raise ValueError(f"there is no task '{task}': {hint} (`python -m tasks list` shows all)")
        return self._by_id[task]

    def _draw(self, index: int) -> Task:
        if not self._tasks:
            raise ValueError("there is no task to draw from: give tasks=, or options={'task': ...} to reset()")
        return self._tasks[index]
