"""The instructions of IFEval beside lm-eval's checks: mean time of one check, and how it grows with junk.

    python -m benchmarks.answers_ifeval --peer /path/to/venv/bin/python
    TURNGYM_LM_EVAL=/path/to/venv/bin/python python -m benchmarks.answers_ifeval

The peer is the Python of an environment of its own with `pip install "lm-eval[ifeval]==0.4.13"`; without it our
numbers stand alone. Both sides check the same GPT-4 responses, strictly and by the same meaning (`reference`), over
the ids that need no downloaded data: all but number_sentences and capital_word_frequency. The tables of the language
detection are loaded before. The first pass meets every text for the first time, as in use, and decides; the median of
further passes over the same texts is shown too, in seconds of the processor, not of the clock. Then all 25 ids meet
10 KB, 100 KB and 1 MB of junk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.answers.ifeval.language import warm_up
from tasks.answers.instructions import IFEVAL, Instruction, InstructionType, Semantics, follows, make

NEEDS_DATA = frozenset({"length_constraints:number_sentences", "change_case:capital_word_frequency"})
TARGET = 0.5
"""Our mean check at most so many times lm-eval's."""
SIZES = (10_000, 100_000, 1_000_000)
JUNK: dict[str, str] = {
    "brackets": "[",
    "newlines": "\n",
    "angles": "<<",
    "blanks": "a ",
    "stars": "*",
    "bullets": "* \n",
    "capitals": "I'M A.B ",
    "sentences": "Hm! ",
    "dots": "U.S. ",
    "quotes": "\"'",
}
ARGUMENTS: dict[str, Any] = {
    "keywords": ["sea", "rock"],
    "keyword": "sea",
    "forbidden_words": ["sea"],
    "letter": "#",
    "language": "de",
    "postscript_marker": "P.S.",
    "section_spliter": "Section",
    "first_word": "sea",
    "prompt_to_repeat": "sea",
    "end_phrase": "sea",
}

_PEER = """
import json, logging, statistics, sys, time
logging.disable(logging.CRITICAL)
import nltk
nltk.download = lambda *a, **k: False
from lm_eval.tasks.ifeval import instructions_registry
import langdetect
langdetect.DetectorFactory.seed = 0
langdetect.detect("warm up")
cases, passes = json.load(open(sys.argv[1])), int(sys.argv[2])
made = []
for id, kwargs, text in cases:
    check = instructions_registry.INSTRUCTION_DICT[id](id)
    check.build_description(**kwargs)
    made.append((id, check, text))
times, verdicts = [], []
for number in range(passes + 1):
    spent = []
    verdicts = []
    for id, check, text in made:
        start = time.thread_time()
        verdict = bool(text.strip()) and bool(check.check_following(text))
        spent.append(time.thread_time() - start)
        verdicts.append(verdict)
    times.append(spent)
print(json.dumps([times[0], [statistics.median(spent) for spent in zip(*times[1:])], verdicts]))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers_ifeval", description=__doc__.split("\n")[0])
    parser.add_argument("--peer", default=os.environ.get("TURNGYM_LM_EVAL"), help="Python that has lm-eval[ifeval]")
    parser.add_argument("--passes", type=int, default=3, help="measured passes (default: %(default)s)")
    options = parser.parse_args(arguments)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, python {sys.version.split()[0]}"
    )
    cases = load_cases()
    if cases is None:
        print("checks: left out, no shared data with IFEval (set TURNGYM_SHARED)")
    else:
        show_checks(cases, options.peer, options.passes)
    show_junk()


def load_cases() -> list[tuple[str, dict[str, Any], str]] | None:
    """Each instruction of the public prompts with the GPT-4 response; None without the shared data."""
    named = os.environ.get("TURNGYM_SHARED")
    root = (Path(named) if named else Path(__file__).resolve().parent.parent.parent / "shared") / "data" / "ifeval"
    if not root.is_dir():
        return None
    rows = {row["prompt"]: row for row in _lines(root / "input_data.jsonl")}
    cases: list[tuple[str, dict[str, Any], str]] = []
    for answer in _lines(root / "responses_gpt4_20231107.jsonl"):
        row = rows[answer["prompt"]]
        for id, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            cases.append((id, {name: value for name, value in kwargs.items() if value}, answer["response"]))
    return cases


def show_checks(cases: list[tuple[str, dict[str, Any], str]], peer: str | None, passes: int) -> None:
    ours, again, verdicts = measure(cases, passes)
    chosen = [number for number, case in enumerate(cases) if case[0] not in NEEDS_DATA]
    theirs: dict[int, float] = {}
    their_again: list[float] = []
    if peer is None:
        print("lm-eval: absent (give --peer or TURNGYM_LM_EVAL)")
    else:
        times, their_again, found = run_peer(peer, [cases[number] for number in chosen], passes)
        theirs = dict(zip(chosen, times, strict=True))
        drawn = sum(a != verdicts[n] for n, a in zip(chosen, found, strict=True))
        print(f"verdicts that differ from lm-eval's: {drawn} of {len(chosen)} (it draws two of them at random)")
    by_id: dict[str, list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        by_id[case[0]].append(number)
    print(f"{'id':48}{'n':>5}{'ours ms':>10}{'lm-eval ms':>12}")
    for id, numbers in sorted(by_id.items()):
        known = [theirs[n] for n in numbers if n in theirs]
        other = f"{statistics.mean(known) * 1e3:12.3f}" if known else f"{'-':>12}"
        print(f"{id:48}{len(numbers):5}{statistics.mean(ours[n] for n in numbers) * 1e3:10.3f}{other}")
    print(f"mean of all 25 ids: ours {statistics.mean(ours) * 1e3:.3f} ms")
    for what, mine, other in (
        ("first pass", [ours[n] for n in chosen], list(theirs.values())),
        ("further passes", [again[n] for n in chosen], their_again),
    ):
        mean = statistics.mean(mine) * 1e3
        line = f"mean without the two that need data, {what}: ours {mean:.3f} ms"
        if other:
            peer_mean = statistics.mean(other) * 1e3
            line += f", lm-eval {peer_mean:.3f} ms, ratio {mean / peer_mean:.2f} (target: at most {TARGET})"
        print(line)


def measure(cases: list[tuple[str, dict[str, Any], str]], passes: int) -> tuple[list[float], list[float], list[bool]]:
    """Seconds of each check in the first pass, and the median of the further ones; its verdict."""
    warm_up()
    made = [(make(id, kwargs), text) for id, kwargs, text in cases]
    times: list[list[float]] = []
    verdicts: list[bool] = []
    for _ in range(passes + 1):
        spent: list[float] = []
        verdicts = []
        for instruction, text in made:
            start = time.thread_time()
            verdict = follows(instruction, text, Semantics.REFERENCE)
            spent.append(time.thread_time() - start)
            verdicts.append(verdict)
        times.append(spent)
    return times[0], [statistics.median(spent) for spent in zip(*times[1:], strict=True)], verdicts


def run_peer(
    peer: str, cases: list[tuple[str, dict[str, Any], str]], passes: int
) -> tuple[list[float], list[float], list[bool]]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        done = subprocess.run([peer, "-c", _PEER, file.name, str(passes)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the peer {peer} failed: {done.stderr.strip().splitlines()[-1:]}")
    first, again, verdicts = json.loads(done.stdout.strip().splitlines()[-1])
    return first, again, verdicts


def show_junk() -> None:
    """The slowest of the 25 ids on each kind of junk, strict: ten times the junk must take about ten times as long."""
    instructions = [_example(known) for known in IFEVAL]
    print(f"{'junk':12}{'semantics':12}" + "".join(f"{size // 1000:>8} KB" for size in SIZES) + "  slowest id at 1 MB")
    for name, unit in JUNK.items():
        for semantics in Semantics:
            spent = [
                {item.id: _seconds(lambda i=item, t=text, s=semantics: follows(i, t, s)) for item in instructions}
                for text in ((unit * (size // len(unit)))[:-1] + "x" for size in SIZES)
            ]
            row = "".join(f"{max(times.values()) * 1e3:11.1f}" for times in spent)
            print(f"{name:12}{semantics.value:12}{row}  {max(spent[-1], key=lambda id: spent[-1][id])}")


def _example(known: InstructionType) -> Instruction:
    return make(known.id, {name: ARGUMENTS.get(name, _default(name)) for name in known.arguments})


def _default(name: str) -> object:
    return "at least" if name.endswith("relation") else 2


def _seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]


if __name__ == "__main__":
    main()
