"""What a model folder says about itself to us: which environment and prompts it was trained with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

CARD_FILE = "turngym.json"
DEFAULT_STYLE = "standard"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a policy was made for.

    Attributes:
        prompt_style: Style of the messages that it knows.
        environment: Id of the environment that it was trained in; empty where nobody noted it.
        prompt_hash: Hash of what that environment said in that style, with the settings of the run.
    """

    prompt_style: str = DEFAULT_STYLE
    environment: str = ""
    prompt_hash: str = ""

    def mismatch(self, environment: str, prompt_hash: str) -> str | None:
        """Why figures in an environment are not those of the policy as it was trained; `None` where they are.

        A policy measured in another environment than its own is no mismatch: that is what transfer is about.
        """
        if not self.prompt_hash or environment != self.environment or prompt_hash == self.prompt_hash:
            return None
        return (
            f"the policy was trained with other prompts (hash {self.prompt_hash}) than it is measured with now "
            f"({prompt_hash}): prompt style, tools, revisions or the version differ, and so may the figures"
        )


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
