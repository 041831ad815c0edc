"""Episodes in rounds: one batched call of the policy per turn, then all environments together. Equal bytes.

Every round samples one reply for each live episode, then steps all their environments and waits for all of them. Which
episodes share a batch therefore depends on the jobs and the slots only, never on which thread was faster. A slot whose
episode ends takes the next job in the same round; while the policy decodes, the tasks of the next jobs in line are laid
out.

Several calls take turns at the policy in a fixed order: while it decodes for one, the environments of the others step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from agents.policy import Completion, PolicyError, PromptTooLong, Request, answers_of, checked
from agents.rollout.episode import Step
from agents.rollout.run import MACHINERY, Player, Run
from envs.conversation import StopReason


@dataclass(slots=True)
class _Round:
    """A round of one call, from the replies to what the environments answer.

    Attributes:
        texts: The replies, by slot; a slot without one is finished for want of room.
        calls: What the environments are doing.
        stepping: The policy has answered, and the environments have not been waited for.
    """

    texts: dict[int, str] = field(default_factory=dict)
    calls: dict[int, Future[Step]] = field(default_factory=dict)
    stepping: bool = False


class Lockstep(Player):
    """See the top of this file."""

    def play(self, runs: Sequence[Run]) -> None:
        """Play every job of every call."""
        rounds = [_Round() for _ in runs]
        try:
            clock = time.perf_counter()
            for run in runs:
                self.environments.expect(run.jobs, run.lane, run.slots + run.ahead)
                run.timing.sandbox_seconds = time.perf_counter() - clock
                self._refill(run)
                clock = _spent(run, clock)
            while any(run.live or its.stepping for run, its in zip(runs, rounds, strict=True)):
                for run, its in zip(runs, rounds, strict=True):
                    if its.stepping:
                        self._answered(run, its)
                    if run.live:
                        self.environments.open_ahead(run.jobs[run.next : run.next + run.ahead], run.lane)
                        self._ask_and_step(run, its)
                    clock = _spent(run, clock)
        except PolicyError as error:
            for run in runs:
                self.all_broken(run, error)
            raise
        finally:
            self.policy.forget([episode.name for run in runs for episode in run.live.values()])

    def _ask_and_step(self, run: Run, its: _Round) -> None:
        """One reply of every live episode; their environments begin to step."""
        wanted: dict[int, Request | None] = {}
        for slot, episode in list(run.live.items()):
            try:
                wanted[slot] = episode.request(run.asked, self.max_context)
            except PolicyError as error:  # its first prompt is too long: the others go on
                self.broken(run, slot, error)
        asking = {slot: request for slot, request in wanted.items() if request is not None}
        its.texts = {}
        if asking:
            clock = time.perf_counter()
            answers = answers_of(self.policy, list(asking.values()), run.sampling)
            seconds = time.perf_counter() - clock
            run.timing.model_seconds += seconds
            for (slot, request), reply in zip(asking.items(), answers, strict=True):
                answer = checked(self.policy, request, reply)
                if isinstance(answer, Completion):
                    run.timing.sampled(answer)
                    its.texts[slot] = run.live[slot].replied(answer, seconds / len(asking))
                elif not isinstance(answer, PromptTooLong):
                    self.broken(run, slot, answer)
        self.check()  # before anything is made anew
        its.stepping = True
        for slot, episode in run.live.items():
            text = its.texts.get(slot)
            call = partial(episode.finish, StopReason.MAX_TOKENS) if text is None else partial(episode.step, text)
            its.calls[slot] = self.environments.submit(episode.env, call)

    def _answered(self, run: Run, its: _Round) -> None:
        """What the environments answer; then the free slots take new jobs."""
        again: list[int] = []
        calls, its.calls, its.stepping = its.calls, {}, False
        for slot, step in self._together(run, calls):
            if not isinstance(step, Step):
                if self.failed(run, slot, step):
                    again.append(slot)
                continue
            episode = run.live[slot]
            if slot in its.texts:
                episode.stepped(step)
            else:
                episode.ended(step)
            if episode.trajectory.stop_reason:
                self.over(run, slot)
        self._refill(run, again)
        if run.on_round is not None:
            run.on_round(run.state())

    def _refill(self, run: Run, again: Sequence[int] = ()) -> None:
        """Start the next jobs in the free slots, and start over those that failed."""
        while True:
            starting = {slot: self.environments.submit(run.live[slot].env, run.live[slot].reset) for slot in again}
            for slot in range(run.slots):
                if slot not in run.live and run.next < len(run.jobs):
                    _, starting[slot] = self.take(run, slot)
            if not starting:
                return
            failed: list[int] = []
            for slot, step in self._together(run, starting):
                if isinstance(step, Step):
                    run.live[slot].started(step)
                elif self.failed(run, slot, step):
                    failed.append(slot)
            again = failed

    def _together(self, run: Run, calls: dict[int, Future[Step]]) -> list[tuple[int, Step | Exception]]:
        """Wait for all calls; failures of the machinery come back as values.

        Whatever else a call raises is a defect and propagates, once every other call has come back.
        """
        clock = time.perf_counter()
        errors = {slot: call.exception() for slot, call in calls.items()}
        self.check()
        run.timing.sandbox_seconds += time.perf_counter() - clock
        out: list[tuple[int, Step | Exception]] = []
        for slot, call in calls.items():
            error = errors[slot]
            if error is None:
                out.append((slot, call.result()))
            elif isinstance(error, MACHINERY):
                out.append((slot, error))
            else:
                raise error
        return out


def _spent(run: Run, since: float) -> float:
    """Count the time since `since` as the call's; returns now."""
    now = time.perf_counter()
    run.spent += now - since
    return now
