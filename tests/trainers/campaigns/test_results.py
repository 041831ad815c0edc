"""What docs/results.md quotes is what a report says of the metrics that are kept beside it."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from trainers.campaigns.plan import load_campaign
from trainers.campaigns.results import make_report

DOCS = Path(__file__).parents[3] / "docs"
QUOTED = [
    [line for line in block.splitlines() if line]
    for block in re.findall(r"```text\n(.*?)```", (DOCS / "results.md").read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.mark.parametrize(
    "archive", ["quickstart_credit.tar.gz", "multi_turn.tar.xz", "smollm2_turns.tar.xz", "qwen0.5b_shell.tar.xz"]
)
def test_the_kept_metrics_give_the_sentences_that_are_quoted(
    archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(DOCS / "results" / archive) as file:
        file.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    said = make_report(load_campaign(archive.partition(".tar")[0])).lines()
    (quoted,) = [block for block in QUOTED if block[0] in said]
    assert [line for line in quoted if line not in said] == []
    verdicts = [line for line in said if re.match(r"\w+ against \w+: ", line)]
    assert [line for line in quoted if line in verdicts] == verdicts, "a comparison is not quoted"
