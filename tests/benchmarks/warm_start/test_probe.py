from __future__ import annotations

import torch

from benchmarks.warm_start.probe import probe, table
from tasks.families import MIX, generate
from tasks.families.quickstart import ALL_WORDS
from trainers.warmstart.corpus import train_tokenizer


class Oracle:
    """Answers each conversation with the next command of the task's oracle, and then the stop word."""

    device = torch.device("cpu")

    def __init__(self, tokenizer, tasks, broken: str = "") -> None:
        self.tokenizer, self.broken = tokenizer, broken
        self.commands = {task.intent: task.oracle.commands for task in tasks}
        self.families = {task.intent: task.family for task in tasks}

    def generate(self, input_ids, **settings):
        rows = [self._row(ids) for ids in input_ids.tolist()]
        width = max(len(row) for row in rows)
        replies = torch.tensor([row + [self.tokenizer.pad_token_id] * (width - len(row)) for row in rows])
        return torch.cat([input_ids, replies], dim=1)

    def _row(self, ids):
        text = self.tokenizer.decode(ids)
        intent = text.split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
        done = text.count("```bash\n")
        reply = "TASK_COMPLETE"
        if self.families[intent] == self.broken:
            reply = "```bash\ncurl example.org\n```"
        elif done < len(self.commands[intent]):
            reply = f"```bash\n{self.commands[intent][done]}\n```"
        return [*self.tokenizer.encode(reply), self.tokenizer.eos_token_id]


def test_an_oracle_passes_everything_and_a_stranger_is_counted():
    tokenizer = train_tokenizer(ALL_WORDS)
    tasks = generate(MIX, 40, 5)
    good = probe(Oracle(tokenizer, tasks), tokenizer, tasks, temperature=0.0)
    assert (good.total.n, good.total.passed, good.total.submitted, good.total.unknown) == (40, 40, 40, 0)
    assert sum(tally.n for tally in good.families.values()) == 40
    bad = probe(Oracle(tokenizer, tasks, broken="copy"), tokenizer, tasks, temperature=0.0)
    copies = bad.families["copy"]
    assert copies.n > 0 and copies.passed == 0 and copies.submitted == 0
    assert copies.unknown == copies.turns == 6 * copies.n
    assert bad.total.passed == 40 - copies.n
    assert "copy" in table(bad, good) and len(table(bad, good).splitlines()) == len(bad.families) + 2
