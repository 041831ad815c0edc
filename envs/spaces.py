"""A text space for real text, that also holds in Gymnasium's asynchronous vector environment.

Gymnasium's `Text` knows only the characters of a charset and looks at each of them. `UnicodeText` is every text up to
a length. It registers its own shared-memory functions: with the stock ones for `Text`, `AsyncVectorEnv` decodes the
buffer once, when it is built, and returns that text ever after.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, overload

import numpy as np
from gymnasium.spaces import Text
from gymnasium.spaces.utils import flatten, flatten_space
from gymnasium.vector.utils.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

OBSERVATION_LENGTH = 65_536
"""Longest observation, in characters. Prompt styles cut output far below it; it bounds intents."""
ACTION_LENGTH = 1_048_576
"""Longest reply, in characters."""
_SAMPLED = string.ascii_letters + string.digits + string.punctuation + " \n"
_SAMPLE_LENGTH = 64
_PREFIX = 8  # bytes that hold a text's length


class UnicodeText(Text):
    """Every `str` of `min_length` to `max_length` characters.

    Membership looks at type and length only, so it costs the same for any text. `sample()` draws printable ASCII of at
    most 64 characters (or `min_length`): a space this large has no useful uniform sample.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=min_length, charset=_SAMPLED, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of a fitting length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text; `mask` and `probability` as in `gymnasium.spaces.Text`."""
        if mask is None and probability is None:
            longest = max(self.min_length, min(self.max_length, _SAMPLE_LENGTH))
            mask = (int(self.np_random.integers(self.min_length, longest + 1)), None)
        return super().sample(mask=mask, probability=probability)

    @property
    def is_np_flattenable(self) -> bool:
        """False: there is no finite alphabet to number."""
        return False

    def __repr__(self) -> str:
        """The call that makes an equal space."""
        return f"UnicodeText({self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object) -> bool:
        """Spaces with the same bounds are equal."""
        return (
            isinstance(other, UnicodeText)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
        )

    __hash__ = None  # type: ignore[assignment]  # as every Gymnasium space: mutable, so not hashable


class SharedTexts(Sequence[str]):
    """The texts of all slots as they stand in shared memory now; a copy is a plain tuple of `str`.

    `AsyncVectorEnv` reads its buffer once and hands out deep copies of what it read, which suits arrays that view the
    buffer. This is such a view for texts.
    """

    def __init__(self, buffer: Any, slots: int) -> None:
        self._buffer = buffer
        self._slots = slots

    def __len__(self) -> int:
        return self._slots

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[str]:
        view = memoryview(self._buffer.get_obj()).cast("B")
        size = len(view) // self._slots
        for start in range(0, self._slots * size, size):
            length = int.from_bytes(view[start : start + _PREFIX], "little")
            yield bytes(view[start + _PREFIX : start + _PREFIX + length]).decode("utf-8", "surrogatepass")

    def __copy__(self) -> tuple[str, ...]:
        return tuple(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Sequence) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: ModuleType | None = None) -> Any:
    if ctx is None:
        import multiprocessing as ctx
    # Four bytes hold any character of UTF-8, so no text of the space is ever cut.
    return ctx.Array("B", n * (_PREFIX + 4 * space.max_length))  # type: ignore[union-attr]


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n)


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    data = value.encode("utf-8", "surrogatepass")
    size = _PREFIX + 4 * space.max_length
    if len(data) > size - _PREFIX:
        raise ValueError(f"a text of {len(value)} characters is not in {space}")
    view = memoryview(shared_memory.get_obj()).cast("B")
    start = index * size
    view[start : start + _PREFIX] = len(data).to_bytes(_PREFIX, "little")
    view[start + _PREFIX : start + _PREFIX + len(data)] = data


@flatten_space.register(UnicodeText)
def _flatten_space(space: UnicodeText) -> Any:
    raise NotImplementedError(f"{space} has no flat form: its alphabet is all of Unicode")


@flatten.register(UnicodeText)
def _flatten(space: UnicodeText, x: str) -> Any:  # type: ignore[misc]  # the stub dispatches on a type variable
    raise NotImplementedError(f"{space} has no flat form: its alphabet is all of Unicode")
