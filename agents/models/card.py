"""What a folder of weights says about itself: its card, and the hash of every file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from envs.protocol import DEFAULT_PROTOCOL
from tasks.model import atomic_file

# -- The one error of this folder -------------------------------------------------------------------------------------


class ModelError(ValueError):
    """A model cannot be found or loaded; the message says why and what to do."""


# -- What a folder of weights held when it was written: name, size and hash of every file, in `turngym_files.json` ----
# The list is written last and in one step, so that a folder which has one was whole; whoever reads the folder
# compares. A folder without one (a model from elsewhere, one of an older release) is taken as it is.

MANIFEST = "turngym_files.json"
BY_HAND = f"If the folder was changed on purpose, remove its {MANIFEST}."
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written.

    Attributes:
        path: The file.
        what: What is wrong with it, in words that follow its name.
    """

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def write_manifest(folder: Path) -> None:
    """List every file of a folder, those of folders in it included, as they are now.

    Raises:
        OSError: A file cannot be read, or the list cannot be written.
    """
    _write(folder, {name: _described(folder / name) for name in _names(folder)})


def replace_file(folder: Path, name: str, text: str) -> None:
    """Give one file of a listed folder another content; at each moment the folder is whole by its list.

    Between the two writes of the list it admits the old content and the new one.

    Raises:
        OSError: It cannot be written.
    """
    files = {listed: _described(folder / listed) for listed in _names(folder)}
    content = text.encode("utf-8")
    new = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _write(folder, files, {name: new})
    with atomic_file(folder / name) as file:
        file.write(text)
    _write(folder, {**files, name: new})


def damage_of(
    folder: Path, *, needs_list: bool = False, leave_out: Callable[[str], bool] | None = None
) -> list[Damage]:
    """The files of a folder that are missing or are not what was written; none where no list says what they were.

    Args:
        folder: Of weights.
        needs_list: Whoever wrote the folder lists its files: without a list it is damaged.
        leave_out: Names that are not compared.
    """
    path = folder / MANIFEST
    if not path.exists():
        return [Damage(path, "is missing")] if needs_list else []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        files, new = document["files"], document.get("or", {})
        accepted = {name: [entry, *([new[name]] if name in new else [])] for name, entry in files.items()}
        wanted = {name: entries for name, entries in accepted.items() if leave_out is None or not leave_out(name)}
        found = [_compared(folder / name, entries) for name, entries in wanted.items()]
    except OSError as error:
        return [Damage(path, f"cannot be read ({error.strerror})")]
    except (ValueError, KeyError, TypeError, AttributeError):
        what = "is not the list of files that was written" if path.stat().st_size else "is empty"
        return [Damage(path, what)]
    return [damage for damage in found if damage is not None]


def _compared(path: Path, accepted: list[Mapping[str, Any]]) -> Damage | None:
    """How a file differs from every content that its list admits."""
    sizes, hashes = [int(entry["size"]) for entry in accepted], {str(entry["sha256"]) for entry in accepted}
    try:
        size = path.stat().st_size
        if size in sizes and sha256_of(path) in hashes:
            return None
    except FileNotFoundError:
        return Damage(path, "is missing")
    except OSError as error:
        return Damage(path, f"cannot be read ({error.strerror})")
    if not size and any(sizes):
        return Damage(path, f"is empty ({sizes[0]:,} bytes were written)")
    if size not in sizes:
        return Damage(
            path, f"is {'shorter' if size < sizes[0] else 'longer'} than written ({size:,} of {sizes[0]:,} bytes)"
        )
    return Damage(path, "differs from what was written (another sha256)")


def _names(folder: Path) -> list[str]:
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name != MANIFEST)


def _described(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256_of(path)}


def _write(folder: Path, files: Mapping[str, Any], new: Mapping[str, Any] | None = None) -> None:
    document = {"format": _FORMAT, "files": dict(files), **({"or": dict(new)} if new else {})}
    with atomic_file(folder / MANIFEST) as file:
        file.write(json.dumps(document, indent=1) + "\n")


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- What a model folder says about itself to us: how the policy in it was spoken to, and what its replies end with ---
# Every folder of weights that we write has a card. Where one has none, because an older release wrote it, the run
# folder around it says the same.

CARD_FILE = "turngym.json"
DEFAULT_STYLE = "standard"
_SETTINGS, _MACHINE, _LOCK = "config.yaml", "environment.json", "tasks.lock"
"""Of a run folder."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a policy was made for. `None`, empty text and an empty tuple say that nobody noted it.

    Attributes:
        prompt_style: Style of the messages that it knows.
        environment: Id of the environment that it was trained in: the protocol of a turn.
        prompt_hash: Hash of what that environment said in that style, with the settings of the run.
        max_turn_tokens: Cap on one reply.
        max_turns: Turns of an episode; 0 is each task's own budget.
        tools: Questions: the agent could run commands before it answered.
        revise: IFEval: how often an answer could be revised.
        stops: Texts behind which a reply counts no more.
        end_ids: Ids that ended a reply, ascending.
        keep_observations: How many of the last observations its prompts showed in full, older ones as a line; `None` is
            all of them.
        max_episode_tokens: Most ids of an episode; `None` is no budget.
        protocol: How its replies say what to do (`envs.protocol`).
        shots: Questions: examples before each of them, as question and answer.
    """

    prompt_style: str = DEFAULT_STYLE
    environment: str = ""
    prompt_hash: str = ""
    max_turn_tokens: int | None = None
    max_turns: int | None = None
    tools: bool | None = None
    revise: int | None = None
    stops: tuple[str, ...] | None = None
    end_ids: tuple[int, ...] = ()
    keep_observations: int | None = None
    max_episode_tokens: int | None = None
    protocol: str = DEFAULT_PROTOCOL
    shots: tuple[tuple[str, str], ...] = ()

    def mismatch(self, environment: str, prompt_hash: str) -> str | None:
        """Why figures in an environment are not those of the policy as it was trained; `None` where they are.

        A policy measured in another environment than its own is no mismatch: that is what transfer is about.
        """
        if not self.prompt_hash or environment != self.environment or prompt_hash == self.prompt_hash:
            return None
        return (
            f"the policy was trained with other prompts (style {self.prompt_style}, hash {self.prompt_hash}) than it "
            f"would get now ({prompt_hash}): prompt style, protocol, keep_observations, tools, revisions, shots or the "
            "version differ, and so may the figures"
        )

    def other_stops(self, environment: str, stops: tuple[str, ...] | None) -> str | None:
        """Why replies would be cut elsewhere than they were in training; `None` where they are not, or nobody knows."""
        if self.stops is None or environment != self.environment or stops == self.stops:
            return None
        return f"its replies were cut at the texts {list(self.stops)} in training, and would be at {list(stops or ())}"

    def told(self) -> dict[str, Any]:
        """What is known, JSON-able: the content of the file."""
        defaults = asdict(ModelCard())
        return {k: v for k, v in asdict(self).items() if k == "prompt_style" or v != defaults[k]}


def read_card(folder: str | Path) -> ModelCard:
    """The card of a model folder, or what the run folder around it says; the default for any other model.

    Raises:
        ValueError: A file is there that should say it, and cannot be read.
    """
    card = find_card(folder)
    return ModelCard() if card is None else card


def find_card(folder: str | Path) -> ModelCard | None:
    """The card of a model folder, or what the run folder around it says; `None` where neither says anything.

    Raises:
        ValueError: A file is there that should say it, and cannot be read.
    """
    path = Path(folder) / CARD_FILE
    if path.is_file():
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            told = ModelCard(**{k: _frozen(v) for k, v in fields.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a model card ({error})") from error
        return _completed(told, Path(folder)) if told.prompt_hash and told.max_turn_tokens is None else told
    return next((card for run in _runs(Path(folder)) if (card := _card_of_run(run)) is not None), None)


def write_card(folder: str | Path, card: ModelCard) -> None:
    """Put a card into a model folder."""
    (Path(folder) / CARD_FILE).write_text(json.dumps(card.told()) + "\n", encoding="utf-8")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _runs(folder: Path) -> Iterator[Path]:
    """Run folders that a folder of weights may lie in, or be."""
    for run in (folder, folder.resolve().parent):
        if all((run / name).is_file() for name in (_SETTINGS, _MACHINE, _LOCK)):
            yield run


def _completed(card: ModelCard, folder: Path) -> ModelCard:
    """A card of release 0.6, which names no caps, with those that its run's settings name."""
    for run in _runs(folder):
        whole = _card_of_run(run)
        if whole is not None and (whole.environment, whole.prompt_hash) == (card.environment, card.prompt_hash):
            return whole
    return card


def _card_of_run(run: Path) -> ModelCard | None:
    """What the settings of a run say; `None` where they do not say the style.

    Raises:
        ValueError: They cannot be read.
    """
    path = run / _SETTINGS
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        path = run / _MACHINE
        machine = json.loads(path.read_text(encoding="utf-8"))
        if not machine.get("prompt_style"):
            return None
        questions = str(settings.get("env", "")) not in ("", "ClawGym-v0", "ClawGym-v1")
        return ModelCard(
            prompt_style=str(machine["prompt_style"]),
            environment=str(settings.get("env") or ""),
            prompt_hash=str(machine.get("prompt_hash") or ""),
            max_turn_tokens=settings.get("max_turn_tokens") or None,
            max_turns=settings.get("max_turns"),
            tools=settings.get("tools") if questions else None,
            revise=settings.get("revise") if questions else None,
            keep_observations=settings.get("keep_observations") or None,
            max_episode_tokens=settings.get("max_episode_tokens") or None,
            protocol=str(machine.get("protocol") or DEFAULT_PROTOCOL),
        )
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: does not say how the policy of this run was spoken to ({error})") from error
