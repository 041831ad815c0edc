"""The last few values of a figure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import fmean, median


class Window:
    """The last `size` values; `full` once there are as many."""

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float | None) -> bool:
        """Take a value in (`None`: the step had none, which is left out); returns `full`."""
        if value is not None:
            self._values.append(value)
        return self.full

    def fill(self, values: Iterable[float]) -> None:
        """Hold these values instead."""
        self._values.clear()
        self._values.extend(values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> list[float]:
        """Oldest first."""
        return list(self._values)

    @property
    def full(self) -> bool:
        """As many values as it holds at most."""
        return len(self._values) == self._values.maxlen

    @property
    def mean(self) -> float:
        """Of at least one value."""
        return fmean(self._values)

    @property
    def median(self) -> float:
        """Of at least one value."""
        return median(self._values)

    @property
    def low(self) -> float:
        """Smallest of at least one value."""
        return min(self._values)

    @property
    def high(self) -> float:
        """Largest of at least one value."""
        return max(self._values)
