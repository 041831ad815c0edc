"""What a model folder says about itself to us: which prompt style it was trained with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

CARD_FILE = "turngym.json"
DEFAULT_STYLE = "standard"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Attributes: `prompt_style` the style of the messages the policy knows."""

    prompt_style: str = DEFAULT_STYLE


def read_card(folder: str | Path) -> ModelCard:
    """The card of a model folder; the default where there is none (any other model).

    Raises:
        ValueError: The file is there and is no card.
    """
    path = Path(folder) / CARD_FILE
    if not path.is_file():
        return ModelCard()
    try:
        return ModelCard(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a model card ({error})") from error


def write_card(folder: str | Path, card: ModelCard) -> None:
    """Lay the card into a model folder."""
    (Path(folder) / CARD_FILE).write_text(json.dumps(asdict(card)) + "\n", encoding="utf-8")
