r"""The small tokenizer of a warm start: byte-level BPE in which every word of the task vocabulary is one token.

A policy of a million parameters spends most of its learning on copying names from the intent into a command. That is
far easier when a name is one token wherever it stands, so the merges are trained to exhaustion on a fixed list of
pieces: each word with and without a space before it, the frequent pieces of some demonstrations, and the markers of
a reply. Any other text still encodes, in smaller pieces, down to single bytes.

The chat format is ChatML (`<|im_start|>role\n...<|im_end|>\n`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

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
