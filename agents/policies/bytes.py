"""ByteTokenizer: one id per byte and three control ids, so that scripted policies need no model and no download."""

from __future__ import annotations

from collections.abc import Sequence

import jinja2

_CONTROLS = ("<|im_start|>", "<|im_end|>")


class ByteTokenizer:
    """The part of a tokenizer that this package uses, with ChatML turns. Ids 0-255 are bytes, then the controls."""

    name_or_path = "bytes"
    chat_template = "chatml"
    vocab_size = 256 + len(_CONTROLS)
    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token = "<|im_end|>"
    eos_token_id = 257
    pad_token_id = 257
    all_special_ids = (256, 257)

    @property
    def added_tokens_decoder(self) -> dict[int, str]:
        """Control ids and their literals."""
        return {256 + index: literal for index, literal in enumerate(_CONTROLS)}

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text; the control literals become their ids."""
        ids: list[int] = []
        rest = text
        while rest:
            found = [(rest.find(literal), index) for index, literal in enumerate(_CONTROLS) if literal in rest]
            at, index = min(found, default=(len(rest), -1))
            ids += rest[:at].encode("utf-8", "surrogateescape")
            if index < 0:
                break
            ids.append(256 + index)
            rest = rest[at + len(_CONTROLS[index]) :]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **kwargs: object) -> str:
        """Text of ids; bytes that are no UTF-8 are replaced."""
        out = bytearray()
        for token in ids:
            if token < 256:
                out.append(token)
            elif not skip_special_tokens:
                out += _CONTROLS[token - 256].encode()
        return out.decode("utf-8", "replace")

    def apply_chat_template(
        self,
        conversation: Sequence[dict[str, str]],
        *,
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
        **kwargs: object,
    ) -> str:
        """ChatML as text, or what another template makes of the conversation."""
        if tokenize:
            raise ValueError("ByteTokenizer renders text only; encode it with encode()")
        if chat_template is not None:
            template = jinja2.Template(chat_template)
            return template.render(messages=conversation, add_generation_prompt=add_generation_prompt, **kwargs)
        turns = [f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in conversation]
        return "".join(turns) + ("<|im_start|>assistant\n" if add_generation_prompt else "")
