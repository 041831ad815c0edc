"""T2PO: a policy wrapper that spends exploration where the sampler is unsure.

Three independent switches: a cap on the turn; a budget (and a stop rule) for thinking (`agents.t2po.think`); and
resampling of a turn whose uncertainty hardly differs from that of the turn before (`agents.t2po.resample`). Off means
the bare policy, id for id.

Source: T2PO and its authors' code; where the two differ, both forms are offered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agents.policy import (
    Abilities,
    Answer,
    Around,
    Completion,
    Policy,
    PolicyError,
    Request,
    Sampling,
    SomeFailed,
    Stream,
    TaskAware,
    abilities,
    answers_of,
    decode_label,
    stream_of,
)
from agents.t2po.config import T2POConfig
from agents.t2po.resample import Meter, Resampler, Turning
from agents.t2po.think import (
    OfficialStop,
    PaperStop,
    PublishedStop,
    StopRule,
    ThinkControl,
    ThinkStop,
    starts_inside,
    tag_id,
)
from agents.uncertainty import TOP, Signal, mean_of, token_signals, turn_signal

if TYPE_CHECKING:
    from tasks.task import Task


class T2PO(Around):
    """A policy around a policy.

    Args:
        policy: The policy that samples.
        config: The switches.

    Attributes:
        enabled: When false, every call goes straight to the policy.

    Raises:
        ValueError: The policy, or its tokenizer, cannot do what a switch needs; the message has the remedy.
    """

    def __init__(self, policy: Policy, config: T2POConfig) -> None:
        self.policy = policy
        self.config = config
        self.enabled = True
        self._measuring = False
        self._vocabulary = len(policy.tokenizer)
        self._resampler = Resampler(config)
        self._tasks: dict[str, Task] = {}
        """Of a task-aware policy's conversations, for those that are made up."""
        _refuse(config, abilities(policy))
        self._tags = _tags(policy.tokenizer, config) if config.thinks else None

    @property
    def meter(self) -> Meter:
        """What resampling did so far; inside `evaluation()` what it did there."""
        return self._resampler.meter

    @property
    def eta(self) -> float | None:
        """The band's width in use; `None` until calibrated."""
        return self._resampler.eta

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """For a measurement: the turn cap as always, the rest off unless the configuration says otherwise.

        Nothing that is resampled here enters the calibration or the meter of training.
        """
        before = self._measuring, self._resampler.meter, self._resampler.learns
        self._measuring, self._resampler.meter, self._resampler.learns = True, Meter(), False
        try:
            yield
        finally:
            self._measuring, self._resampler.meter, self._resampler.learns = before

    def cap(self, sampling: Sampling) -> int:
        """Most ids of a reply with these settings, for those who must know whether it fits into the context."""
        inner = getattr(self.policy, "cap", None)
        cap = sampling.max_tokens if inner is None else int(inner(sampling))
        own = self.config.max_turn_tokens if self.enabled else None
        return cap if own is None else min(cap, own)

    def label(self, sampling: Sampling) -> str:
        """For tables: the decode settings, and which switches are on now."""
        if not self.enabled:
            return decode_label(self.policy, sampling)
        config = self.config
        parts = [decode_label(self.policy, replace(sampling, max_tokens=self.cap(sampling)))]
        if config.thinks and not self._limits_thinking:
            parts.append("think limits off")
        elif config.thinks:
            parts += [f"think_budget={config.think_budget}"] * (config.think_budget is not None)
            parts += [f"think_stop={config.think_stop}"] * (config.think_stop is not ThinkStop.NONE)
        parts.append(f"turn resampling {self._resampling_label(sampling)}")
        return ", ".join(parts)

    def begin(self, conversation: str, task: Task) -> None:
        """Pass the task on to a policy that wants to know it."""
        if isinstance(self.policy, TaskAware):
            self._tasks[conversation] = task
            self.policy.begin(conversation, task)

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        for conversation in conversations:
            self._resampler.forget(conversation)
            self._tasks.pop(conversation, None)
        self.policy.forget(conversations)

    def invalidate(self) -> None:
        """Pass on that the weights changed."""
        invalidate = getattr(self.policy, "invalidate", None)
        if invalidate is not None:
            invalidate()

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order, with the switches that are on at work.

        Raises:
            PolicyError, SomeFailed: As the policy. A further sample that fails alone is none, and raises nothing.
        """
        if not self.enabled:
            return self.policy.complete(requests, sampling)
        capped = [self._capped(request, sampling) for request in requests]
        answers = self._sample(capped, sampling)
        if self._resamples:
            self._resample(capped, answers, sampling)
        completions = [answer for answer in answers if isinstance(answer, Completion)]
        if len(completions) < len(answers):
            raise SomeFailed(answers)
        return completions

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> Stream:
        """Replies one by one, with the switches that are on at work.

        While the band's width is calibrated nothing is resampled before the stream's end: in the middle, which turns it
        has seen would depend on a clock.
        """
        inner = stream_of(self.policy, sampling, wake)
        return _TurnStream(self, sampling, inner) if self.enabled else inner

    def trigger_rate(self) -> float | None:
        """Share of eligible turns that were resampled; `None` before there is one."""
        return self.meter.rate()

    def warning(self) -> str | None:
        """What is wrong with resampling, in words; `None` when nothing is, or too little was seen."""
        if not self.config.turn_resample:
            return None
        calibrated = self.config.turn_resample_eta is None
        return self.meter.warning(self.eta, calibrated=calibrated) or self._resampler.warning()

    def metrics(self) -> dict[str, float]:
        """Figures of resampling so far, under the names of the logs; empty until eta is known."""
        meter, rate = self.meter, self.trigger_rate()
        if self.eta is None or rate is None:
            return {}
        out = {
            "t2po/eta": self.eta,
            "t2po/trigger_rate": rate,
            "t2po/undecided_frac": meter.undecided / meter.eligible,
            "t2po/exhausted_frac": meter.exhausted / meter.eligible,
        }
        if self.config.budgeted:
            out |= {"t2po/extra_samples": float(meter.asked), "t2po/unpaid_frac": meter.unpaid / meter.eligible}
        return out

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, JSON-able: the calibration and the counts."""
        return self._resampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> str | None:
        """Put back what `state_dict` gave, where it was made with the same signal, mean, rate and eta.

        Returns:
            What differs, for people; the calibration then starts anew. `None` where nothing does.

        Raises:
            ValueError: Another release wrote it.
        """
        return self._resampler.load_state_dict(state)

    @property
    def _limits_thinking(self) -> bool:
        return self.config.thinks and (self.config.think_evaluate or not self._measuring)

    @property
    def _resamples(self) -> bool:
        return self.config.turn_resample and (self.config.turn_resample_evaluate or not self._measuring)

    @property
    def _reads_top(self) -> bool:
        """Whether anything that is on now reads the likeliest ids of every position."""
        stops = self._limits_thinking and self.config.think_stop is ThinkStop.PUBLISHED
        return stops or (self._resamples and self.config.turn_resample_signal is Signal.PUBLISHED)

    def _resampling_label(self, sampling: Sampling) -> str:
        if not self._resamples or sampling.greedy:
            return "off"
        if self.eta is None and self._measuring:
            return "off (eta is not calibrated)"
        head = "on once eta is calibrated (" if self.eta is None else f"on (eta={self.eta:.3g}, "
        budget = self.config.turn_resample_episode_budget
        most = "" if budget is None else f", episode_budget={budget}"
        return f"{head}max_try={self.config.turn_resample_max_try}, keep={self.config.turn_resample_keep}{most})"

    def _capped(self, request: Request, sampling: Sampling) -> Request:
        cap = request.cap(sampling)
        if self.config.max_turn_tokens is not None:
            cap = min(cap, self.config.max_turn_tokens)
        return replace(request, max_tokens=cap)

    def _turn(self, request: Request, answer: Answer, sampling: Sampling) -> Turning:
        return self._resampler.turn(request, answer, greedy=sampling.greedy)

    def _resample(self, requests: list[Request], answers: list[Answer], sampling: Sampling) -> None:
        """Replace the turns in the band, pass by pass; the conversations made up for that are forgotten."""
        given = {request.conversation for request in requests}
        forks: list[str] = []
        turns = [self._turn(*pair, sampling) for pair in zip(requests, answers, strict=True)]
        sent: dict[int, list[Answer] | None] = dict.fromkeys(range(len(turns)))
        try:
            while sent:
                asked: dict[int, list[Request]] = {}
                for at, drawn in sent.items():
                    try:
                        asked[at] = next(turns[at]) if drawn is None else turns[at].send(drawn)
                    except StopIteration as end:
                        answers[at] = end.value
                wanted = [request for some in asked.values() for request in some]
                self._begin_made_up(wanted, given, forks)
                drawn_now = iter(self._sample_again(wanted, sampling) if wanted else [])
                sent = {at: [next(drawn_now) for _ in some] for at, some in asked.items()}
        finally:
            if forks:
                self.policy.forget(forks)

    def _begin_made_up(self, wanted: Sequence[Request], given: Collection[str], forks: list[str]) -> None:
        """Tell a policy that wants to know of the task of conversations that were made up; they join `forks`."""
        for request in wanted:
            if request.conversation in given:
                continue
            forks.append(request.conversation)
            task = self._tasks.get(request.fork_of or "")
            if task is not None and isinstance(self.policy, TaskAware):
                self.policy.begin(request.conversation, task)

    def _sample_again(self, wanted: list[Request], sampling: Sampling) -> list[Answer]:
        try:
            return self._sample(wanted, sampling)
        except PolicyError as error:  # every one of them; an engine that is down fails the next turn, too
            return [error] * len(wanted)

    def _sample(self, requests: list[Request], sampling: Sampling) -> list[Answer]:
        """One sample of each, thinking limited, with the turn's signal, the counts, and what it was sampled with."""
        controlled = [self._controlled(request) for request in requests]
        answers = list(answers_of(self.policy, [request for request, _ in controlled], sampling))
        for answer, request, (_, control) in zip(answers, requests, controlled, strict=True):
            self._note(answer, request, control)
        return answers

    def _controlled(self, request: Request) -> tuple[Request, ThinkControl | None]:
        """The request as the policy gets it, and what limits its thinking."""
        control = self._control(request)
        top = max(TOP if self._reads_top else 0, request.top)
        return replace(request, control=control or request.control, top=top), control

    def _note(self, answer: Answer, request: Request, control: ThinkControl | None) -> None:
        """Write into a reply what is known about its turn; a failure stays as it is."""
        if isinstance(answer, PolicyError):
            return
        self._measure(answer)
        if answer.seed is None:  # a wrapper further inside knows better
            answer.seed = request.seed
        if answer.max_tokens is None:
            answer.max_tokens = request.max_tokens
        if control is not None:
            control.read(answer.ids)
            answer.notes["thought_tokens"] = float(control.thought)
            for cause in control.causes:
                answer.notes[cause] = answer.notes.get(cause, 0.0) + 1.0

    def _measure(self, completion: Completion) -> None:
        """Record the turn's uncertainty over its sampled ids, as far as it is known."""
        config = self.config
        values = token_signals(completion, config.turn_resample_signal, self._vocabulary)
        signal = turn_signal(
            values,
            mean_of(config.turn_resample_signal, config.turn_resample_aggregate),
            config.turn_resample_min_tokens,
        )
        known = signal is not None and signal.known
        completion.signal = signal.lower if signal is not None and known else None
        completion.signal_bounds = None if signal is None or known else (signal.lower, signal.upper)

    def _control(self, request: Request) -> ThinkControl | None:
        if self._tags is None or not self._limits_thinking:
            return None
        assert request.max_tokens is not None
        config, vocabulary = self.config, self._vocabulary
        window = (config.think_stop_window, config.think_stop_window_eps, config.think_stop_min_tokens)
        stop: StopRule | None = None
        match config.think_stop:
            case ThinkStop.OFFICIAL:
                stop = OfficialStop(vocabulary, config.think_stop_patience, config.think_stop_eps)
            case ThinkStop.PAPER:
                stop = PaperStop(*window, vocabulary=vocabulary)
            case ThinkStop.PUBLISHED:
                stop = PublishedStop(*window)
        return ThinkControl(
            open_id=self._tags[0],
            close_id=self._tags[1],
            inside=starts_inside(request.prompt_ids, *self._tags, self.eos_ids),
            max_tokens=request.max_tokens,
            think_budget=config.think_budget,
            think_answer_reserve=config.think_answer_reserve,
            stop=stop,
            before=request.control,
        )


@dataclass(slots=True)
class _Asked:
    """Samples of one turn that are under way.

    Attributes:
        request: The turn's, capped.
        turn: The turn while it is resampled; `None` before its first sample.
        wanted: What was asked for, with what limits its thinking; `answers` by conversation.
        forks: Conversations made up for the turn.
    """

    request: Request
    turn: Turning | None
    wanted: list[tuple[Request, ThinkControl | None]]
    answers: dict[str, Answer] = field(default_factory=dict)
    forks: list[str] = field(default_factory=list)


class _TurnStream:
    """T2PO around a stream: see `Stream`."""

    def __init__(self, t2po: T2PO, sampling: Sampling, inner: Stream) -> None:
        self._t2po, self._sampling, self._inner = t2po, sampling, inner
        self._asked: dict[str, _Asked] = {}
        """By every conversation that a sample of the turn is asked for in."""
        self._ended: list[tuple[str, Answer]] = []
        t2po._resampler.holds_back = True

    @property
    def working(self) -> bool:
        return self._inner.working or bool(self._ended)

    def ask(self, requests: Sequence[Request]) -> None:
        capped = [self._t2po._capped(request, self._sampling) for request in requests]
        self._sample([_Asked(request, None, [self._t2po._controlled(request)]) for request in capped])

    def advance(self) -> list[tuple[str, Answer]]:
        for name, answer in self._inner.advance():
            asked = self._asked.pop(name)
            asked.answers[name] = answer
            if len(asked.answers) == len(asked.wanted):
                self._sampled(asked)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        self._inner.close()
        self._asked.clear()
        self._t2po._resampler.holds_back = False
        self._t2po._resampler.calibrate()

    def _sample(self, turns: Sequence[_Asked]) -> None:
        for asked in turns:
            self._asked |= dict.fromkeys((request.conversation for request, _ in asked.wanted), asked)
        self._inner.ask([request for asked in turns for request, _ in asked.wanted])

    def _sampled(self, asked: _Asked) -> None:
        """All samples that the turn waited for are there: it ends, or wants more."""
        t2po, name = self._t2po, asked.request.conversation
        answers = [asked.answers[request.conversation] for request, _ in asked.wanted]
        for answer, (request, control) in zip(answers, asked.wanted, strict=True):
            t2po._note(answer, request, control)
        if not t2po._resamples:
            self._ended.append((name, answers[0]))
            return
        try:
            if asked.turn is None:
                asked.turn = t2po._turn(asked.request, answers[0], self._sampling)
                more = next(asked.turn)
            else:
                more = asked.turn.send(answers)
        except StopIteration as end:
            if asked.forks:
                t2po.policy.forget(asked.forks)
            self._ended.append((name, end.value))
            return
        t2po._begin_made_up(more, {name}, asked.forks)
        asked.wanted, asked.answers = [t2po._controlled(request) for request in more], {}
        self._sample([asked])


def _refuse(config: T2POConfig, can: Abilities) -> None:
    """Refuse settings that make no sense, and switches that a policy cannot serve."""
    if wrong := list(config.problems()):
        raise ValueError("\n".join(wrong))
    if config.thinks and not can.own_ids:
        raise ValueError(
            "think_budget and think_stop put a closing tag between the model's own ids, and this policy answers with "
            "text: its ids are not the model's. Leave both off and cap replies with max_turn_tokens, or use a policy "
            "with token ids (policies.transformers)."
        )
    if config.think_stop is not ThinkStop.NONE and not (can.entropies and can.every_control):
        raise ValueError(
            f"think_stop={config.think_stop} looks at the exact distribution of every position while a reply is "
            "decoded, and this policy's engine does not show it. Use think_budget, or the engine in this process "
            "(policies.transformers)."
        )
    if config.turn_resample and not (can.entropies or can.logprobs):
        raise ValueError(
            "turn_resample compares the uncertainty of turns, and this policy reports no log-probabilities: no turn "
            "has a signal. Leave it off, or use a policy that reports them (policies.transformers)."
        )
    if config.turn_resample and config.turn_resample_signal is Signal.PUBLISHED and not can.entropies:
        raise ValueError(
            "turn_resample_signal=published: is scaled within the reply from exact distributions, and this policy's "
            "engine knows only the likeliest ids. Use entropy, top1 or official, or the engine "
            "in this process (policies.transformers)."
        )


def _tags(tokenizer: Any, config: T2POConfig) -> tuple[int, int]:
    """Ids of the opening and the closing tag."""
    opening, closing = (tag_id(tokenizer, tag) for tag in (config.think_open, config.think_close))
    if opening is None or closing is None:
        raise ValueError(
            f"think_budget and think_stop need {config.think_open} and {config.think_close} as single tokens, "
            "and this model's tokenizer has none: it does not think in blocks. Leave both off; "
            "max_turn_tokens limits its replies."
        )
    return opening, closing
