"""Foreign records as pydantic models: known keys are checked, others are kept."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.jsonl import RecordError


class Shape(BaseModel):
    """A part of a record. A key that the format does not know is kept under its name in `other`."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Check a record.

        Raises:
            RecordError: A key is missing or its value has the wrong type; names the key.
        """
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
            raise RecordError(f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}") from None

    @property
    def other(self) -> dict[str, Any]:
        """Keys that the format does not know."""
        return dict(self.model_extra or {})
