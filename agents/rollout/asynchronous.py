"""Episodes that advance on their own: none waits for another one's reply, command or grade.

One thread, the engine's, does all the bookkeeping. It asks the policy's stream for a reply as soon as an episode's
environment has answered, and has the environment take the reply as soon as it is there; a policy in this process
computes a little between two looks. A command that waits keeps no other environment (`environments.Patient`).

What does not depend on a clock: each reply's seed (its job and turn decide), the order of the results (the jobs'), and
which episodes belong to the call. What does: the order in which episodes end, and which replies are computed in one
batch. A float sum depends on the shape of its batch, so a sampled id may be another one where the draw falls within
rounding of the border between two ids (about 1e-5); `Lockstep` gives equal bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue

from agents.policy import Answer, Completion, PolicyError, PromptTooLong, Request, Stream, checked, stream_of
from agents.rollout.episode import Step
from agents.rollout.run import MACHINERY, Player, Run, Unfinished
from envs.conversation import StopReason

LOOK_SECONDS = 0.1
"""A wait is begun anew this often: steps may be due, and Ctrl-C just before a wait would be noticed at its end."""

Event = tuple[int, Callable[[Step], None], Future[Step]]
"""A slot, what takes its environment's answer, and the call that has come back."""


@dataclass(slots=True)
class _Call:
    """One call of the engine, and what its thread waits for.

    Attributes:
        stream: Replies under way.
        events: What has come back from environments; `None` only wakes.
        asking: Requests under way by conversation: their slot, the request, and `shared` when it was asked.
        calls: The last call of each slot's environment, and what takes its answer.
        shared: Seconds of the policy so far, each divided among the replies that were under way in it: the difference
            between two moments is one reply's share.
    """

    run: Run
    stream: Stream
    events: SimpleQueue[Event | None]
    asking: dict[str, tuple[int, Request, float]] = field(default_factory=dict)
    shared: float = 0.0
    calls: dict[int, tuple[Future[Step], Callable[[Step], None]]] = field(default_factory=dict)


class Asynchronous(Player):
    """See the top of this file."""

    events: SimpleQueue[Event | None] | None = None
    """Of the call under way."""

    def wake(self) -> None:
        """See `Player`."""
        if self.events is not None:
            self.events.put(None)

    def play(self, runs: Sequence[Run]) -> None:
        """Play every job of every call, one call after the other."""
        for run in runs:
            clock = time.perf_counter()
            self.environments.expect(run.jobs[len(run.unfinished) :], run.lane)
            run.timing.sandbox_seconds = time.perf_counter() - clock
            self.events = events = SimpleQueue[Event | None]()
            stream = stream_of(self.policy, run.sampling, partial(events.put, None))
            call = _Call(run, stream, events)
            try:
                self._play(call)
            except PolicyError as error:
                self.all_broken(run, error)
                raise
            finally:
                stream.close()
                self.policy.forget([episode.name for episode in run.live.values()])
                run.spent = time.perf_counter() - clock

    def _play(self, call: _Call) -> None:
        run = call.run
        self._go_on(call)
        self._fill(call)
        while run.live or run.next < len(run.jobs):
            self.check()
            if run.enough is not None and run.enough(run.done):
                self._leave(call)
                return
            for name, answer in self._advance(call):
                self._answered(call, name, answer)
            events = self._events(call)
            ready = [slot for event in events for slot in self._came_back(call, event)]
            self._fill(call)
            self._ask(call, ready)
            if run.on_round is not None and events:
                run.on_round(run.state())

    # -- a call that may return before every episode is over ----------------------------------------------------------

    def _go_on(self, call: _Call) -> None:
        """Take up what the call before left."""
        run = call.run
        left, run.unfinished = run.unfinished, []
        run.next = len(left)
        for slot, unfinished in enumerate(left):
            unfinished.episode.index = slot
            run.live[slot] = unfinished.episode
        for slot, unfinished in enumerate(left):
            self._wait_for(call, slot, unfinished.future, unfinished.then)

    def _leave(self, call: _Call) -> None:
        """Nothing more is asked for. Replies that are under way come; their environments take them, and go on alone."""
        while call.asking:
            self.check()
            answers = self._advance(call)
            for name, answer in answers:
                self._answered(call, name, answer)
            if not answers:
                self._events(call)  # only to wait: the next call hears them again
        live = sorted(call.run.live.items(), key=lambda item: item[1].index)
        call.run.unfinished = [Unfinished(episode, *call.calls[slot]) for slot, episode in live]
        call.run.live = {}

    # -- the policy ---------------------------------------------------------------------------------------------------

    def _ask(self, call: _Call, slots: Sequence[int]) -> None:
        """Ask for the next reply of each of these episodes; one that has no room for it is finished."""
        run, requests = call.run, []
        for slot in slots:
            episode = run.live[slot]
            try:
                request = episode.request(run.asked, self.max_context)
            except PolicyError as error:  # its first prompt is too long: the others go on
                self.broken(run, slot, error)
                continue
            if request is None:
                self._finish(call, slot)
            else:
                call.asking[request.conversation] = slot, request, call.shared
                requests.append(request)
        if requests:
            call.stream.ask(requests)

    def _advance(self, call: _Call) -> list[tuple[str, Answer]]:
        """What the stream has; the time that it takes is the policy's."""
        clock, working = time.perf_counter(), call.stream.working
        answers = call.stream.advance()
        if working:
            self._worked(call, time.perf_counter() - clock)
        return answers

    def _worked(self, call: _Call, seconds: float) -> None:
        call.run.timing.model_seconds += seconds
        call.shared += seconds / max(1, len(call.asking))

    def _answered(self, call: _Call, name: str, reply: Answer) -> None:
        slot, request, shared = call.asking.pop(name)
        episode, answer = call.run.live[slot], checked(self.policy, request, reply)
        if isinstance(answer, Completion):
            call.run.timing.sampled(answer)
            text = episode.replied(answer, call.shared - shared)
            self._submit(call, slot, partial(episode.step, text), episode.stepped)
        elif isinstance(answer, PromptTooLong):
            self._finish(call, slot)
        else:
            self.broken(call.run, slot, answer)

    # -- the environments ---------------------------------------------------------------------------------------------

    def _fill(self, call: _Call) -> None:
        """Put the next jobs into the free slots, and lay out those behind them."""
        run = call.run
        for slot in range(run.slots):
            if slot not in run.live and run.next < len(run.jobs):
                episode, opening = self.take(run, slot)
                self._wait_for(call, slot, opening, episode.started)
        self.environments.open_ahead(run.jobs[run.next : run.next + run.ahead], run.lane)

    def _finish(self, call: _Call, slot: int) -> None:
        """No room for a further reply: the episode is graded as it stands."""
        episode = call.run.live[slot]
        self._submit(call, slot, partial(episode.finish, StopReason.MAX_TOKENS), episode.ended)

    def _submit(self, call: _Call, slot: int, work: Callable[[], Step], then: Callable[[Step], None]) -> None:
        self.check()  # before anything is made anew
        self._wait_for(call, slot, self.environments.submit(call.run.live[slot].env, work), then)

    def _wait_for(self, call: _Call, slot: int, future: Future[Step], then: Callable[[Step], None]) -> None:
        call.calls[slot] = future, then
        future.add_done_callback(lambda done: call.events.put((slot, then, done)))

    def _events(self, call: _Call) -> list[Event]:
        """What has come back from environments; waits for something where the policy has nothing to compute."""
        events: list[Event] = []
        wait = bool(call.run.live) and not call.stream.working
        clock = time.perf_counter()
        while True:
            try:
                event = call.events.get(timeout=LOOK_SECONDS) if wait else call.events.get_nowait()
            except Empty:
                self.environments.look()
                if wait:
                    continue
                break
            wait = False
            if event is not None:
                events.append(event)
        waited = time.perf_counter() - clock
        if call.asking and not call.stream.working:
            self._worked(call, waited)
        elif not call.stream.working:
            call.run.timing.sandbox_seconds += waited
        return sorted(events, key=lambda event: event[0])

    def _came_back(self, call: _Call, event: Event) -> list[int]:
        """Take what an environment answered; the slot, if its episode wants a reply now.

        What a call raises that is no failure of the machinery is a defect, and propagates.
        """
        slot, then, future = event
        self.check()
        episode, error = call.run.live[slot], future.exception()
        if isinstance(error, MACHINERY):
            if self.failed(call.run, slot, error):
                self._submit(call, slot, episode.reset, episode.started)
            return []
        if error is not None:
            raise error
        then(future.result())
        if episode.trajectory.stop_reason:
            self.over(call.run, slot)
            return []
        return [slot]
