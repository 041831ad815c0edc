"""An environment as clients of the OpenEnv project see it: their messages, and what each does to an episode.

Contract with openenv-core 0.3 (held by a test that plays with its client): a session is a WebSocket; each message is a
JSON object of a `type` and its `data` and gets one answer of the type `observation`, `state` or `error`; only `close`
has none. An observation is `{"observation": {...}, "reward": number or null, "done": bool}`. Nothing of theirs is
imported here.

What leaves the server is what the agent is shown, the reward, and by name which checks passed at the end. What a check
compares with, its code, and why it failed stay here: a policy that trains on what it is sent must not find them there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

from gymnasium.error import ResetNeeded
from pydantic import Field, ValidationError

from envs.conversation import ConversationEnv, StopReason
from sandboxes.sandbox import SandboxError, SandboxUnavailable
from tasks.assertions.base import Verdict
from tasks.assertions.grade import GradeError
from tasks.model import StrictModel, unknown_key

BROKEN = "The sandbox or a grader failed: this episode has no reward. Send reset to start another."


class ErrorCode(StrEnum):
    """OpenEnv's codes of errors."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    SESSION_ERROR = "SESSION_ERROR"


# -- What clients send ------------------------------------------------------------------------------------------------


class Reset(StrictModel):
    """Starts an episode; all of it may be left out."""

    seed: int | None = Field(None, ge=0, description="Decides which task is drawn: equal seeds, equal episodes.")
    task_id: str | None = Field(None, description="The task of this episode.")
    episode_id: str | None = Field(None, max_length=255, description="The client's name of the episode.")


class Step(StrictModel):
    """One reply of the policy."""

    message: str = Field(description="The whole reply, as the model wrote it.")
    metadata: dict[str, Any] = Field(default={}, description="Not used; OpenEnv's own actions have it.")


class Nothing(StrictModel):
    """What `state` and `close` come with."""


DATA: dict[str, type[StrictModel]] = {"reset": Reset, "step": Step, "state": Nothing, "close": Nothing}
"""Types of messages, and what each takes as `data`."""


# -- What clients are sent --------------------------------------------------------------------------------------------


class Check(StrictModel):
    """How one assertion came out."""

    name: str
    verdict: Verdict
    score: float | None = Field(description="0 to 1; null for an error.")


class Observation(StrictModel):
    """What the agent is shown, and facts about the turn that say nothing of how it is judged."""

    message: str = Field(description="What the agent is shown: after reset the task, after a step what it did.")
    system_prompt: str | None = Field(None, description="After reset: the system message before the conversation.")
    task_id: str
    seed: int
    turn: int = Field(description="Replies so far.")
    max_turns: int
    action: str | None = Field(None, description="What the reply was taken for, such as command, submit or malformed.")
    exit_code: int | None = Field(None, description="Of the command of this turn.")
    stop_reason: str | None = Field(
        None, description="Why the episode ended; with infrastructure there is no reward, and no failure of the policy."
    )
    passed: bool | None = Field(None, description="At the end: whether every check passed.")
    rate: float | None = Field(None, description="At the end: the mean score of the checks, 0 to 1.")
    assertions: tuple[Check, ...] = Field((), description="At the end: the checks by name.")


class State(StrictModel):
    """Where the session stands."""

    episode_id: str | None = None
    step_count: int = 0
    task_id: str | None = None
    seed: int | None = None
    max_turns: int | None = None
    stop_reason: str | None = None


def schema() -> dict[str, Any]:
    """JSON schemas of what `step` takes, of what it and `reset` give, and of the state."""
    return {
        "action": Step.model_json_schema(),
        "observation": Observation.model_json_schema(),
        "state": State.model_json_schema(),
    }


def error_message(code: ErrorCode, message: str) -> str:
    """The answer to what cannot be done."""
    return _written("error", {"message": message, "code": code.value})


def _written(kind: Literal["observation", "state", "error"], data: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data})


# -- A session --------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """A message that cannot be acted on; the session goes on.

    Attributes:
        code: Which kind of error it is to OpenEnv.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Session:
    """One client and its environment: one message at a time, each from whatever thread; `abort` from another.

    Args:
        env: Played by this client alone, and closed with the session.
        log: Is told what failed, with what the client is not told.
    """

    def __init__(self, env: ConversationEnv, log: Callable[[str], None]) -> None:
        self._env = env
        self._log = log
        self._state = State()
        self._aborted = False

    def answer(self, text: str | bytes) -> str | None:
        """Do what a message asks for.

        Args:
            text: The message as it came.

        Returns:
            The answer; `None` where the client says goodbye.
        """
        try:
            match read(text):
                case "reset", Reset() as reset:
                    return self._reset(reset)
                case "step", Step() as step:
                    return self._step(step.message)
                case "close", _:
                    return None
            return _written("state", self._state.model_dump())
        except Refused as refused:
            return error_message(refused.code, str(refused))

    def abort(self) -> None:
        """Nobody waits for the answer any more: what runs ends soon. Then `close`."""
        self._aborted = True
        self._env.abort()

    def close(self) -> None:
        """End the sandbox. Idempotent."""
        self._env.close()

    def _reset(self, wanted: Reset) -> str:
        options = None if wanted.task_id is None else {"task": wanted.task_id}
        self._state = State(episode_id=wanted.episode_id)
        try:
            observation, info = self._env.reset(seed=wanted.seed, options=options)
        except SandboxUnavailable as error:
            self._log(f"no sandbox for a session: {error}")
            words = "no sandbox can be had on the server; whoever runs it finds the reason in its output"
            raise Refused(ErrorCode.EXECUTION_ERROR, words) from None
        except (SandboxError, GradeError) as error:
            return self._broken(error)
        except ValueError as error:
            raise Refused(ErrorCode.EXECUTION_ERROR, f"reset: {error}") from None
        return self._shown(observation, info, system_prompt=self._env.system_prompt)

    def _step(self, reply: str) -> str:
        try:
            observation, reward, terminated, truncated, info = self._env.step(reply)
        except ResetNeeded as error:
            raise Refused(ErrorCode.EXECUTION_ERROR, str(error)) from None
        except (SandboxError, GradeError) as error:
            return self._broken(error)
        return self._shown(observation, info, reward, done=terminated or truncated)

    def _broken(self, error: Exception) -> str:
        """The machinery failed: the episode ends without a reward."""
        if not self._aborted:
            self._log(f"task '{self._env.task.id}' ended as {StopReason.INFRASTRUCTURE}: {error}")
        _, info = self._env.finish(StopReason.INFRASTRUCTURE)
        return self._shown(BROKEN, info, done=True)

    def _shown(
        self,
        message: str,
        info: dict[str, Any],
        reward: float | None = None,
        *,
        done: bool = False,
        system_prompt: str | None = None,
    ) -> str:
        """An observation; only what is named here leaves `info`."""
        facts = {name: info[name] for name in ("task_id", "seed", "stop_reason")}
        self._state = State(
            episode_id=self._state.episode_id, step_count=info["turn"], max_turns=self._env.max_turns, **facts
        )
        code = info["exit_code"]
        observation = Observation(
            message=message,
            system_prompt=system_prompt,
            turn=info["turn"],
            max_turns=self._env.max_turns,
            action=info["action"],
            exit_code=None if code is None else int(code),
            passed=info.get("passed"),
            rate=info.get("rate"),
            assertions=tuple(
                Check(name=item["name"], verdict=Verdict(item["verdict"]), score=item["score"])
                for item in info.get("assertions", ())
            ),
            **facts,
        )
        return _written("observation", {"observation": observation.model_dump(), "reward": reward, "done": done})


def read(text: str | bytes) -> tuple[str, StrictModel]:
    """The type and the data of a message.

    Raises:
        Refused: It is none; the text says what was expected.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(ErrorCode.INVALID_JSON, f"a message is JSON, and this is none: {error}") from None
    if not isinstance(message, dict):
        words = f'a message is an object such as {{"type": "reset", "data": {{}}}}, not a {type(message).__name__}'
        raise Refused(ErrorCode.VALIDATION_ERROR, words)
    kind, data = message.get("type"), message.get("data", {})
    if not isinstance(kind, str) or kind not in DATA:
        raise Refused(ErrorCode.UNKNOWN_TYPE, unknown_key(kind, DATA, "type of message"))
    if stray := message.keys() - {"type", "data"}:
        raise Refused(ErrorCode.VALIDATION_ERROR, unknown_key(min(stray), ("type", "data"), f"key of a {kind} message"))
    try:
        return kind, DATA[kind].model_validate(data)
    except ValidationError as error:
        raise Refused(ErrorCode.VALIDATION_ERROR, f"{kind}: {_explained(error, DATA[kind])}") from None


def _explained(error: ValidationError, model: type[StrictModel]) -> str:
    """What is wrong with data, on one line."""
    said = []
    for item in error.errors(include_url=False):
        at = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            said.append(unknown_key(at, model.model_fields))
        else:
            said.append(f"{at or 'data'}: {item['msg']}")
    return "; ".join(said)
