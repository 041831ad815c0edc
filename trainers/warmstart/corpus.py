"""Conversations as arrays of ids with a mask: the tokenizer that makes them, the files they come from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agents.chat import without_clock
from agents.models.card import ModelCard
from agents.trajectory import RecordError, Trajectory, read_records
from envs.protocol import DEFAULT_PROTOCOL
from envs.registry import BUILT_IN
from trainers.warmstart.fieldnotes import Retold, episodes_of, is_field_notes

# -- The small tokenizer of a warm start: byte-level BPE in which every word of the task vocabulary is one token ------
# A policy of a million parameters spends most of its learning on copying names from the intent into a command. That is
# far easier when a name is one token wherever it stands, so the merges are trained to exhaustion on a fixed list of
# pieces: each word with and without a space before it, the frequent pieces of some demonstrations, and the markers of
# a reply. Any other text still encodes, in smaller pieces, down to single bytes.
#
# The chat format is ChatML (`<|im_start|>role\n...<|im_end|>\n`).

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (PAD, START, END)

MARKERS = ("```bash\n", "\n```", "TASK_COMPLETE")
"""What frames a reply: each one token."""

ROLES = ("system", "user", "assistant")

PIECE = (
    r"```bash\n"
    r"|\n```(?![a-z])"  # the closing fence only: a reply that opens a fence follows the template's own newline
    r"|TASK_COMPLETE"
    r"| --?[A-Za-z]+"  # a flag, after a space: inside a name the dash stays by itself
    r"| ?[A-Za-z]+(?:\.[a-z]{1,5}(?![A-Za-z]))?"  # a word, or a file name with its extension
    r"|\.[a-z]{1,5}(?![A-Za-z])"  # an extension by itself, as in *.txt
    r"| ?(?:>>|<<|&&|\|\||\.\./|\./|\$\()"
    r"| ?[0-9]"  # digits stand alone, so that numbers are read and written digit by digit
    r"| ?[^\sA-Za-z0-9]"
    r"|\n"
    r"|[^\S\n]+"
)
"""Where text is cut before merging; a merge never crosses a cut."""

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] -%}"
    "{{- raise_exception('this chat template knows the roles system, user and assistant') -}}"
    "{%- endif -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""Prefix-preserving: a longer conversation begins with exactly the text of the shorter one."""


def chatml(messages: Sequence[Mapping[str, str]], *, prompt: bool) -> str:
    """What `CHAT_TEMPLATE` renders, for messages of its three roles."""
    text = "".join(f"{START}{message['role']}\n{message['content']}{END}\n" for message in messages)
    return f"{text}{START}assistant\n" if prompt else text


class TokenizerError(ValueError):
    """The trained tokenizer does not keep what it promises; the message says which words are split."""


def pieces(text: str) -> list[str]:
    """Cut `text` where the tokenizer would, without training one."""
    return [piece for piece, _ in _splitter().pre_tokenize_str(text)]


def frequent_pieces(texts: Iterable[str], min_count: int) -> list[str]:
    """Pieces that occur at least `min_count` times in `texts`, sorted."""
    counts: Counter[str] = Counter()
    splitter = _splitter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    return sorted(piece for piece, count in counts.items() if count >= min_count)


def train_tokenizer(
    words: Iterable[str], texts: Iterable[str] = (), *, min_count: int = 20, context: int = 2048
) -> PreTrainedTokenizerFast:
    """Train the tokenizer. Same arguments, same bytes, in whatever order `words` come.

    Args:
        words: The vocabulary: each becomes one token, with and without a space before it. A word that `PIECE` cuts
            (`a/b`, `x2`) contributes its parts.
        texts: Sample text (such as demonstrations), whose frequent pieces become single tokens too.
        min_count: How often a piece of `texts` must occur.
        context: Longest conversation the model takes, in tokens (`model_max_length`).

    Raises:
        TokenizerError: A word is not one token after all.
    """
    wanted: set[str] = {piece for word in words for form in (word, " " + word) for piece in pieces(form)}
    wanted.update(MARKERS, ROLES, frequent_pieces(texts, min_count))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [_splitter(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1_000_000,  # no limit: merge until every piece of the list is one token
        min_frequency=0,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(wanted), trainer)
    split = sorted(piece for piece in wanted if len(tokenizer.encode(piece).ids) != 1)
    if split:
        raise TokenizerError(f"{len(split)} piece(s) of the vocabulary are not one token: {', '.join(split[:10])}")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
        model_max_length=context,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: str | Path, *, plain: bool = True) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and the chat template.

    Args:
        tokenizer: Ours, or that of an existing model.
        folder: The model folder.
        plain: Name the class that every version reads; right for `train_tokenizer`'s, not for an existing model's.
    """
    tokenizer.save_pretrained(folder)
    if not plain:
        return
    path = Path(folder) / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    # Newer versions write the name of their own back end; this class is known to all of them.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _splitter() -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(PIECE), behavior="isolated")


# -- Conversations as flat arrays of token ids with a mask, ready to be cut into batches of equal length --------------
# A conversation is encoded the way a rollout meets it: the text between two replies and each reply by itself, never
# the whole text at once, so that a trained prefix has exactly the ids that the policy sees when it acts.


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


# -- Supervised data of a file: trajectories of a run, or chat messages of the user -----------------------------------


def read_corpus(path: Path, tokenizer: Any, *, passed_only: bool = True, retold: Retold | None = None) -> Corpus:
    """Trajectories or chat messages of a JSONL file; each line may be either.

    Trajectories keep the ids that were sampled, and forced ids stay untrained. One whose prompts showed older
    observations as lines is a sequence for each turn: what the policy saw, and its reply. Episodes of field-notes that
    have no ids are told anew by `retold`.

    Raises:
        CorpusError: A line is neither, was made with another tokenizer, or nothing is left; names file and line.
    """
    encode: ConversationEncoder | None = None
    sequences: list[tuple[list[int], list[bool]]] = []
    failed = 0
    for number, record in _records(path):
        try:
            if is_field_notes(record):
                for text, trajectory in episodes_of(record):
                    if passed_only and trajectory.passed is not True:
                        failed += 1
                    elif trajectory.turns and trajectory.prompt_ids and not trajectory.text_only:
                        sequences += _trajectory_ids(trajectory, tokenizer)
                    elif trajectory.turns:
                        encode = encode or ConversationEncoder(tokenizer)
                        sequences.append(encode((retold or Retold({}, ModelCard().prompt_style)).messages(text)))
            elif "turns" in record:
                trajectory = Trajectory.from_json(record)
                if passed_only and trajectory.passed is not True:
                    failed += 1
                elif trajectory.turns:
                    sequences += _trajectory_ids(trajectory, tokenizer)
            elif "messages" in record:
                encode = encode or ConversationEncoder(tokenizer)
                sequences.append(encode(_checked(record["messages"])))
            else:
                raise CorpusError("neither a trajectory (`turns`) nor a conversation (`messages`)")
        except (CorpusError, ValueError, TypeError, KeyError) as error:
            raise CorpusError(f"{path}:{number}: {error}") from error
    if not sequences:
        reason = f"none of its {failed} trajectories passed; train on all with --no-passed_only" if failed else "empty"
        raise CorpusError(f"{path}: nothing to train on: {reason}")
    return Corpus.of(sequences)


def spoken_in(path: Path, *, passed_only: bool = True) -> set[ModelCard]:
    """How the environments of a file's trajectories spoke to the policy; empty where no line says it.

    Args:
        path: As `read_corpus` reads it.
        passed_only: Of trajectories that passed.

    Raises:
        CorpusError: The file cannot be read.
    """
    told: set[ModelCard] = set()
    for _, record in _records(path):
        said = record.get("environment")
        if "turns" not in record or not isinstance(said, dict) or not said.get("prompt_style"):
            continue
        if passed_only and record.get("passed") is not True:
            continue
        told_env = str(said.get("env") or "")
        names = (name for name, place in BUILT_IN.items() if place.endswith(f":{told_env}"))
        stops = said.get("stops")
        told.add(
            ModelCard(
                prompt_style=str(said["prompt_style"]),
                environment=next(names, told_env if ":" in told_env else ""),
                prompt_hash=str(said.get("prompt_hash") or ""),
                tools=said.get("tools"),
                revise=said.get("revise"),
                stops=None if stops is None else tuple(stops),
                keep_observations=said.get("keep_observations"),
                protocol=str(said.get("protocol") or DEFAULT_PROTOCOL),
                shots=tuple((str(question), str(answer)) for question, answer in said.get("shots") or ()),
            )
        )
    return told


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from read_records(path)
    except RecordError as error:
        raise CorpusError(str(error)) from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


def _trajectory_ids(trajectory: Trajectory, tokenizer: Any) -> list[tuple[list[int], list[bool]]]:
    flat = trajectory.flat()
    ids = [*trajectory.prompt_ids, *flat.ids]
    first = trajectory.turns[0]
    same = max(ids) < len(tokenizer) and tokenizer.decode(first.ids, skip_special_tokens=True).strip() in (
        first.reply.strip(),
        tokenizer.decode(tokenizer.encode(first.reply, add_special_tokens=False), skip_special_tokens=True).strip(),
    )
    if not same:
        raise CorpusError("the ids of this trajectory are not this model's: it was sampled with another tokenizer")
    if trajectory.keep_observations is None:
        return [(ids, [False] * len(trajectory.prompt_ids) + [bool(flag) for flag in flat.mask])]
    pairs = zip(trajectory.prompts(), trajectory.turns, strict=True)
    return [(p + turn.ids, [False] * len(p) + [not forced for forced in turn.forced]) for p, turn in pairs]


def _checked(messages: Any) -> Sequence[Mapping[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise CorpusError("`messages` must be a list with at least one message")
    for index, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise CorpusError(f"message {index}: needs `role` and `content`, both text")
    return messages
