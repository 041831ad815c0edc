"""A reply while it grows, piece by piece: where a control forces an id, the rest of the piece is thrown away.

A server cannot ask a control at each position. But a `PlannedControl` looks at ids alone, so it is asked afterwards,
position by position: what was sampled before the first forced id was sampled as it should be, and what comes after it
is sampled anew. The horizon only saves sampling ids that are thrown away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from agents.policies.vllm.reply import Piece
from agents.policy import Completion, FinishReason, PlannedControl, PolicyError, Request
from agents.seeds import derive_seed
from agents.uncertainty import entropy_bounds


class Draft:
    """One reply.

    Args:
        request: What was asked for.
        cap: Most ids of the reply.
        eos_ids: Ids that end it.
        decode: Text of ids, control tokens included.
        vocabulary: At least as many ids as the model has, where the likeliest ones are known at temperature 1; else
            `None`, and nothing is said about uncertainty.

    Attributes:
        finish: Why it has ended; `None` while it has not.

    Raises:
        PolicyError: No server can serve the request's control.
    """

    def __init__(
        self,
        request: Request,
        cap: int,
        eos_ids: frozenset[int],
        decode: Callable[[Sequence[int]], str],
        vocabulary: int | None,
    ) -> None:
        self.finish: FinishReason | None = None
        self._request, self._cap, self._eos_ids, self._decode = request, cap, eos_ids, decode
        self._vocabulary = vocabulary
        self._control = _planned(request)
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._forced: list[bool] = []
        self._tops: list[list[float]] = []

    @property
    def prompt(self) -> list[int]:
        """What the next piece follows."""
        return [*self._request.prompt_ids, *self._ids]

    @property
    def seed(self) -> int:
        """Of the next piece: the request's own for the first."""
        return derive_seed(self._request.seed, len(self._ids)) if self._ids else self._request.seed

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the reply."""
        return self._request.stops

    def wanted(self) -> int:
        """How many ids to sample next."""
        room = self._cap - len(self._ids)
        free = None if self._control is None else self._control.horizon(self._ids)
        # One more than is certainly free: where nothing is forced it counts, and where something is, it has told what
        # the distribution of that position looks like.
        return room if free is None else min(room, free + 1)

    def take(self, piece: Piece) -> None:
        """Add a piece, up to the first id that the control forces instead."""
        for at, token in enumerate(piece.ids):
            put_in = None if self._control is None else self._control.force(self._ids, math.nan, math.nan)
            self._ids.append(token if put_in is None else put_in)
            self._logprobs.append(piece.logprobs[at] if put_in is None else 0.0)
            self._forced.append(put_in is not None)
            if piece.tops is not None:
                self._tops.append(piece.tops[at])
            self.finish = self._ended(piece, at, put_in is not None)
            if self.finish is not None or put_in is not None:
                return

    def completion(self) -> Completion:
        """The reply, once it has ended."""
        assert self.finish is not None
        bounds = likeliest = None
        if self._vocabulary is not None and self._tops:
            found = [entropy_bounds(top, self._vocabulary) for top in self._tops]
            bounds = [(bound.lower, bound.upper) for bound in found if bound is not None]
            likeliest = [top[0] for top in self._tops]
        return Completion(self._ids, self._logprobs, None, likeliest, self._forced, self.finish, entropy_bounds=bounds)

    def _ended(self, piece: Piece, at: int, forced: bool) -> FinishReason | None:
        if self._ids[-1] in self._eos_ids:
            return FinishReason.STOP
        if piece.finish is FinishReason.STOP_TEXT and at == len(piece.ids) - 1 and not forced:
            return FinishReason.STOP_TEXT
        # The server looked for stops in this piece alone; with a control the reply has others, and forced ids.
        if self._control is not None and self._request.stops:
            text = self._decode(self._ids)
            if any(stop in text for stop in self._request.stops):
                return FinishReason.STOP_TEXT
        return FinishReason.LENGTH if len(self._ids) == self._cap else None


def _planned(request: Request) -> PlannedControl | None:
    """The request's control, if it is one that can be asked afterwards."""
    control, name = request.control, type(request.control).__name__
    if control is None:
        return None
    if not isinstance(control, PlannedControl):
        raise PolicyError(
            f"request {request.conversation}: {name} must be asked at every position, which a server cannot do; it "
            "would have to say ahead how far it leaves the reply alone (agents.policy.PlannedControl)"
        )
    if control.reads_distribution:
        raise PolicyError(
            f"request {request.conversation}: {name} reads the full distribution of each position, which a server "
            "does not send; sample in this process for that"
        )
    return control
