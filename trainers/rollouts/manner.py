"""How a policy is spoken to: as its card says, or as somebody asked; what neither says has its usual value.

A figure of a policy that is spoken to otherwise than in training is the figure of another thing. So what the card says
is taken over, and where the two still differ without anybody having asked for it, that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gymnasium import Env

from agents.models.card import ModelCard
from envs.conversation import ConversationEnv
from envs.mixed import MixedEnv
from envs.protocol import DEFAULT_PROTOCOL
from envs.questions import AnswerEnv
from envs.registry import environment, id_of, takes
from envs.wrapping import WrappedConversation, as_conversation

AUTO = "auto"
SPOKEN = ("prompt_style", "protocol")
"""Settings that are `auto` unless somebody asks: what differs from the card in them, asked for, is no mistake."""
DEFAULT_ENV = "ClawGym-v0"


@dataclass(frozen=True, slots=True)
class Manner:
    """What an environment and a sampler are told.

    Attributes:
        env: Id of the environment.
        prompt_style: Of its messages.
        tools: Questions: commands before the answer.
        revise: IFEval: revisions of the answer.
        max_turns: 0 is each task's own budget.
        max_turn_tokens: Cap on one reply; `None` where nobody says one.
        keep_observations: How many of the last observations a prompt shows in full; `None` is all of them.
        max_episode_tokens: Most ids of an episode; `None` is no budget.
        shots: Questions: examples before each of them.
        asked: What was asked for and is not what the card says, for people.
        protocol: How replies say what to do.
    """

    env: str
    prompt_style: str
    tools: bool
    revise: int
    max_turns: int
    max_turn_tokens: int | None
    keep_observations: int | None = None
    max_episode_tokens: int | None = None
    shots: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    protocol: str = DEFAULT_PROTOCOL


def manner_of(
    card: ModelCard,
    *,
    env: str | None = None,
    prompt_style: str = AUTO,
    tools: bool | None = None,
    revise: int | None = None,
    max_turns: int | None = None,
    max_turn_tokens: int | None = None,
    keep_observations: int | None = None,
    max_episode_tokens: int | None = None,
    protocol: str = AUTO,
    shots: tuple[tuple[str, str], ...] | None = None,
) -> Manner:
    """What was asked for, and of the rest what the card says. `None` and `auto` ask for nothing.

    In another environment than the card's only style, protocol (where it has one), cap and what becomes of older
    observations are taken from it.
    """
    env = env or card.environment or DEFAULT_ENV
    own = env == card.environment
    trained = {
        "prompt_style": card.prompt_style,
        "protocol": card.protocol if takes(environment(env), "protocol") else DEFAULT_PROTOCOL,
        "max_turn_tokens": card.max_turn_tokens,
        "keep_observations": card.keep_observations or (0 if card.prompt_hash else None),
        **({"tools": card.tools, "revise": card.revise, "max_turns": card.max_turns} if own else {}),
        **({"max_episode_tokens": card.max_episode_tokens or (0 if card.prompt_hash else None)} if own else {}),
    }
    asked = {
        "prompt_style": None if prompt_style == AUTO else prompt_style,
        "protocol": None if protocol == AUTO else protocol,
        "max_turn_tokens": max_turn_tokens,
        "keep_observations": keep_observations,
        "tools": tools,
        "revise": revise,
        "max_turns": max_turns,
        "max_episode_tokens": max_episode_tokens,
    }
    said = tuple(
        f"{name} {asked[name]} (in training {value})"
        for name, value in trained.items()
        if value is not None and asked[name] not in (None, value) and (name not in SPOKEN or card.prompt_hash)
    )
    if shots not in (None, card.shots) and own and card.prompt_hash:
        said += (f"shots {len(shots or ())} (in training {len(card.shots)}{' others' if card.shots else ''})",)
    known = {name: trained.get(name) if value is None else value for name, value in asked.items()}
    return Manner(
        env,
        str(known["prompt_style"]),
        True if known["tools"] is None else bool(known["tools"]),
        int(known["revise"] or 0),
        int(known["max_turns"] or 0),
        None if known["max_turn_tokens"] is None else int(known["max_turn_tokens"]),
        int(known["keep_observations"] or 0) or None,
        int(known["max_episode_tokens"] or 0) or None,
        (card.shots if own else ()) if shots is None else shots,
        said,
        str(known["protocol"]),
    )


def differences(card: ModelCard, env: str, make: Callable[..., ConversationEnv]) -> Iterator[str]:
    """How an environment differs from what the policy was trained with: prompts, and cuts of replies.

    What becomes of older observations is no difference: it is the policy's own, unless somebody asked for another way.

    Args:
        card: Of the policy.
        env: Id of the environment.
        make: Makes it; takes `keep_observations`.
    """
    made = make(keep_observations=card.keep_observations)
    if why := card.mismatch(env, made.prompt_hash):
        yield why
    if why := card.other_stops(env, stops_of(made)):
        yield why


def card_of_env(
    env: Env[str, str], max_turn_tokens: int, name: str = "", *, max_episode_tokens: int | None = None
) -> ModelCard | None:
    """The card of a policy that acts in an environment; `None` for an environment that is none of ours.

    Args:
        env: Of the run, with or without wrappers; no task need be laid out.
        max_turn_tokens: Cap on one reply.
        name: Id of the environment; empty: that under which it is trained.
        max_episode_tokens: Most ids of an episode.
    """
    played = as_conversation(env)
    if isinstance(played, WrappedConversation):
        env = played.conversation
    if not isinstance(env, ConversationEnv):
        return None
    known = id_of(type(env)) or type(env).__name__
    asks = env if isinstance(env, AnswerEnv | MixedEnv) else None
    return ModelCard(
        prompt_style=env.style.name,
        environment=name or known,
        prompt_hash=played.prompt_hash,
        max_turn_tokens=max_turn_tokens,
        max_turns=played.own_max_turns,
        tools=asks.tools if asks is not None else None,
        revise=asks.revisions if asks is not None else None,
        stops=stops_of(env),
        keep_observations=env.keep_observations,
        max_episode_tokens=max_episode_tokens,
        protocol=env.protocol.name,
        shots=env.shots if isinstance(env, AnswerEnv) else (),
    )


def stops_of(env: ConversationEnv) -> tuple[str, ...] | None:
    """Texts behind which a reply counts no more; `None` where the environment of each task has its own."""
    return tuple(getattr(env, "stops", ())) if getattr(env, "_member", None) is None else None


def insist(card: ModelCard, why: Sequence[str]) -> str:
    """The refusal of a difference that nobody asked for, with what to write to have it all the same."""
    return f"{'; '.join(why)}. To have it so all the same, name the style: --prompt_style {card.prompt_style}"
