"""The page of many episodes: how long it takes to write, how large it is, and how soon a browser shows it.

    python -m benchmarks.view
    python -m benchmarks.view --episodes 2000 --keep pages

Makes episodes of 5 turns with 80 tokens each (words drawn from a vocabulary, entropies of their own for every token, so
that neither compresses better than real ones), writes them as a run's files, and times `agents.view.page.write_page`.
The floor beside it is what no writer of such a page can go below: reading the same files as JSON, and compressing the
replies and observations alone. On a busy machine wall time says little: CPU time stands beside it. Headless Chromium
then opens the page: the time is counted by the page itself, from the start of its loading to the list and an episode on
the screen. Where no browser is found, that part is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from agents.policy import FinishReason
from agents.trajectory import Trajectory, Turn, write_jsonl
from agents.view.pack import Tokenizers
from agents.view.page import write_page
from tests.agents.view.browser import CHROMIUM, browser

PER_FILE = 500
WORDS = 4000


class Words:
    """A tokenizer whose ids are words of a text nobody wrote."""

    def __init__(self, rng: random.Random) -> None:
        letters = "etaoinshrdlucmfwygpbvk"
        self.words = ["".join(rng.choices(letters, k=rng.randint(1, 7))) + " " for _ in range(WORDS)]
        self.weights = [1 / (place + 2) for place in range(WORDS)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(self.words[i] for i in ids)


def episode(number: int, words: Words, rng: random.Random, turns: int, tokens: int) -> Trajectory:
    """One that looks like those of training."""
    made = Trajectory(f"task-{number % 500}", "ab" * 32, number // 500, rng.getrandbits(62), [1] * 200)
    for index in range(turns):
        ids = rng.choices(range(WORDS), words.weights, k=tokens)
        command = words.decode(ids[tokens // 2 :])
        entropies = [rng.gammavariate(0.6, 0.9) for _ in ids]
        logprobs = [-value for value in entropies]
        turn = Turn(index, [2] * 20, ids, logprobs, entropies, [False] * tokens, FinishReason.STOP, words.decode(ids))
        turn.max_logprobs = logprobs
        turn.action, turn.command, turn.exit_code, turn.signal = "command", command, 0, rng.choice([0.0, 0.5, -0.5])
        turn.observation = words.decode(rng.choices(range(WORDS), words.weights, k=60))
        turn.model_seconds, turn.sandbox_seconds, turn.seed = rng.random(), rng.random() / 10, rng.getrandbits(62)
        made.turns.append(turn)
    passed = rng.random() < 0.5
    made.stop_reason, made.passed, made.rate, made.reward = "submitted", passed, 1.0 if passed else 0.5, float(passed)
    made.assertions = [
        {"name": "file_equals:out.csv", "kind": "file_equals", "verdict": "pass" if passed else "fail",
         "score": float(passed), "detail": "" if passed else "out.csv: has 4 lines instead of 5", "weight": 1.0}
    ]  # fmt: skip
    made.family, made.tokenizer = f"family{number % 12}", "words"
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.view", description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=80, help="of each reply")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the files and the page there")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, Path(scratch), args.episodes, args.turns, args.tokens)
    return 0


def measure(folder: Path, scratch: Path, episodes: int, turns: int, tokens: int) -> None:
    rng = random.Random(0)
    words = Words(rng)
    files = []
    for first in range(0, episodes, PER_FILE):
        files.append(folder / f"step_{first // PER_FILE:06d}.jsonl")
        with open(files[-1], "w", encoding="utf-8") as file:
            write_jsonl(
                (episode(n, words, rng, turns, tokens) for n in range(first, min(first + PER_FILE, episodes))), file
            )
    size = sum(path.stat().st_size for path in files)
    print(f"{episodes} episodes of {turns} turns of {tokens} tokens: {size / 1e6:.0f} MB in {len(files)} files")

    began, worked = time.perf_counter(), time.process_time()
    texts = []
    for path in files:
        with open(path, "rb") as lines:
            for line in lines:
                texts += [turn["reply"] + turn["observation"] for turn in json.loads(line)["turns"]]
    read, read_work = time.perf_counter() - began, time.process_time() - worked
    least = len(zlib.compress("".join(texts).encode(), 6)) + episodes * turns * tokens
    packing = time.perf_counter() - began - read
    print(f"floor: {read:.1f} s ({read_work:.1f} s of CPU) to read them as JSON, {packing:.1f} s to compress texts")
    print(f"floor: {least / 1e6:.1f} MB for texts and one byte a token, {least * 4 / 3e6:.1f} MB in base64")

    page = folder / "episodes.html"
    for name, tokenizers in (("without a tokenizer", Tokenizers()), ("with the text of each token", Tokenizers(words))):
        began, worked = time.perf_counter(), time.process_time()
        write_page([folder], page, tokenizers)
        wall, work = time.perf_counter() - began, time.process_time() - worked
        print(f"write, {name}: {wall:.1f} s ({work:.1f} s of CPU), {page.stat().st_size / 1e6:.1f} MB")
    if CHROMIUM is None:
        print("open: no chromium here")
        return
    with browser(scratch) as window:
        for what in ("first", "again"):
            window.open(f"{page.as_uri()}#e=step_000003.jsonl:7" if episodes > 4 * PER_FILE else page.as_uri())
            print(
                f"open, {what}: list and an episode after {int(window.run('document.body.dataset.ready')) / 1e3:.2f} s"
            )
        began = time.perf_counter()
        window.run("location.hash = '#q=zz&deep=1'")
        window.wait("document.body.dataset.searched === 'zz'")
        print(f"search in all turns: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    raise SystemExit(main())
