"""Conversations as flat arrays of token ids with a mask, ready to be cut into batches of equal length.

A conversation is encoded the way a rollout meets it: the text between two replies and each reply by itself, never the
whole text at once, so that a trained prefix has exactly the ids that the policy sees when it acts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agents.chat import without_clock
from trainers.warmstart.tokenizer import CHAT_TEMPLATE, chatml


class CorpusError(ValueError):
    """The data cannot be trained on; the message says which conversation and why."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Many sequences end to end.

    Attributes:
        ids: Token ids of all sequences, one after the other, uint32.
        trained: True where the policy spoke (its end-of-turn id included), same length.
        lengths: Tokens of each sequence, int32.
    """

    ids: np.ndarray
    trained: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return len(self.ids)

    def sha256(self) -> str:
        """Equal corpora, equal hashes, on every machine."""
        digest = hashlib.sha256()
        for array, kind in ((self.lengths, "<i4"), (self.ids, "<u4"), (self.trained, "u1")):
            digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
        return digest.hexdigest()

    @classmethod
    def join(cls, parts: Sequence[Corpus]) -> Corpus:
        """The sequences of `parts`, in order."""
        if not parts:
            return cls(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(0, np.int32))
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.trained for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    @classmethod
    def of(cls, sequences: Iterable[tuple[Sequence[int], Sequence[bool]]]) -> Corpus:
        """Pack `(ids, trained)` pairs."""
        ids: list[int] = []
        trained: list[bool] = []
        lengths: list[int] = []
        for sequence, mask in sequences:
            ids.extend(sequence)
            trained.extend(mask)
            lengths.append(len(sequence))
        return cls(np.array(ids, np.uint32), np.array(trained, bool), np.array(lengths, np.int32))

    def shorter_than(self, limit: int) -> Corpus:
        """Without the sequences of more than `limit` tokens."""
        if not len(self) or int(self.lengths.max()) <= limit:
            return self
        keep = self.lengths <= limit
        tokens = np.repeat(keep, self.lengths)
        return Corpus(self.ids[tokens], self.trained[tokens], self.lengths[keep])


class Batches:
    """Batches of similar length, at most `batch_tokens` tokens with padding, in a seeded order.

    Sequences are sorted by length (ties in a seeded order) and cut; the batches are then shuffled. Padding is on the
    right and has weight 0, so that with causal attention no mask is needed.
    """

    def __init__(self, corpus: Corpus, batch_tokens: int, pad_id: int, seed: int) -> None:
        if not len(corpus):
            raise CorpusError("there is no conversation to train on")
        self.corpus = corpus
        self.pad_id = pad_id
        self._starts = np.concatenate([[0], np.cumsum(corpus.lengths, dtype=np.int64)])
        random = np.random.default_rng(seed)
        shuffled = random.permutation(len(corpus))
        order = shuffled[np.argsort(corpus.lengths[shuffled], kind="stable")]
        self.plan = list(_cut(order, corpus.lengths, batch_tokens))
        self._random = random

    def __len__(self) -> int:
        return len(self.plan)

    def epoch(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """One pass: `(ids int64, trained bool, real bool)`, each of shape (sequences, longest)."""
        for index in self._random.permutation(len(self.plan)):
            yield self.batch(self.plan[index])

    def batch(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The given sequences, padded on the right."""
        lengths = self.corpus.lengths[rows]
        columns = np.arange(int(lengths.max()))
        real = columns[None, :] < lengths[:, None]
        source = np.where(real, self._starts[rows][:, None] + columns[None, :], 0)
        ids = np.where(real, self.corpus.ids[source], self.pad_id).astype(np.int64)
        return ids, self.corpus.trained[source] & real, real


def _cut(order: np.ndarray, lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    start = 0
    while start < len(order):
        stop = start + 1
        # Lengths ascend, so the last sequence sets the width.
        while stop < len(order) and int(lengths[order[stop]]) * (stop + 1 - start) <= batch_tokens:
            stop += 1
        yield order[start:stop]
        start = stop


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that encoding a conversation needs."""

    chat_template: Any
    eos_token_id: int

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Messages to text."""

    def encode(self, text: str, **kwargs: Any) -> Any:
        """Text to ids."""


class ConversationEncoder:
    """Chat messages -> `(ids, trained)`.

    Remembers the ids of texts it has met: generated demonstrations repeat most of them.
    """

    def __init__(self, tokenizer: ChatTokenizer, *, remember: int = 100_000) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise CorpusError("the model's tokenizer has no chat template, so a conversation has no one form")
        self._tokenizer = tokenizer
        self._settings = without_clock(tokenizer)
        self._chatml = tokenizer.chat_template == CHAT_TEMPLATE
        self._known: dict[str, list[int]] = {}
        self._remember = remember

    def __call__(self, messages: Sequence[Mapping[str, str]]) -> tuple[list[int], list[bool]]:
        """Encode one conversation; trained are the assistant's messages and the id that ends each.

        Raises:
            CorpusError: No assistant message, or the chat template changes earlier text when messages are added.
        """
        ids: list[int] = []
        trained: list[bool] = []
        done = ""
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            asked = self._render(messages[:index], prompt=True)
            answered = self._render(messages[: index + 1], prompt=False)
            if not (asked.startswith(done) and answered.startswith(asked)):
                raise CorpusError(
                    f"message {index + 1}: the chat template rewrites earlier text when messages are added, so what "
                    "is trained would differ from what the policy sees. Use a template that only appends."
                )
            context = self._encode(asked[len(done) :])
            reply = self._encode(answered[len(asked) :])
            end = _after_last(reply, self._tokenizer.eos_token_id)
            ids += context + reply
            trained += [False] * len(context) + [True] * end + [False] * (len(reply) - end)
            done = answered
        if not any(trained):
            raise CorpusError("no assistant message")
        return ids, trained

    def _render(self, messages: Sequence[Mapping[str, str]], *, prompt: bool) -> str:
        if self._chatml:  # our own template: the same text many times faster than through its interpreter
            return chatml(messages, prompt=prompt)
        return self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=prompt, **self._settings
        )

    def _encode(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            known = list(self._tokenizer.encode(text, add_special_tokens=False))
            if len(self._known) < self._remember:
                self._known[text] = known
        return known


def _after_last(ids: Sequence[int], eos_id: int) -> int:
    """Index after the last end-of-turn id; the length where there is none (a template that writes none)."""
    for index in range(len(ids) - 1, -1, -1):
        if ids[index] == eos_id:
            return index + 1
    return len(ids)
