"""Our tasks in stock TRL: one step of an unchanged `GRPOTrainer`, and what its contract asks of the adapter."""

from __future__ import annotations

import copy
import inspect
import json

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from sandboxes import SandboxError, SandboxUnavailable
from tests.agents.speakers import trl_template
from tests.agents.toys import model, tokenizer
from tests.envs.fakes import FakeSandboxes, task
from trainers.stock_trl import BROKEN, OVER, ShellTask, ShellTasks, episode_reward

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> FakeSandboxes:
    fake = FakeSandboxes()
    monkeypatch.setattr("envs.workplace.open_sandbox", fake)
    return fake


@pytest.fixture
def first(opened: FakeSandboxes):
    with ShellTasks([task()], reward="binary") as tasks:
        yield tasks()


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


class Scripted(GRPOTrainer):
    """Stock TRL whose sampler says what the test wrote: one list of replies per row."""

    def __init__(self, *args, script, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.script, self.said, self.seen = script, {}, []

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False):
        if len(prompt_ids) == len(self.script):
            rows = list(range(len(self.script)))
            self.said = dict.fromkeys(rows, 0)
        else:  # the rows that called a tool before go on, in their order
            rows = [row for row, done in self.said.items() if done < len(self.script[row])]
        replies = []
        for row in rows:
            replies.append(self.script[row][self.said[row]])
            self.said[row] += 1
        return [self._tokenizer.encode(reply, add_special_tokens=False) for reply in replies], None

    def _compute_loss(self, model, inputs):
        self.seen.append({k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)})
        return super()._compute_loss(model, inputs)


@pytest.mark.parametrize("owns_reward", [False, True])
def test_one_step_of_a_stock_trainer(tmp_path, opened, owns_reward):
    done = [call("bash", command="echo hello > greeting.txt"), call("submit"), "Done.<|im_end|>"]
    idle = [call("bash", command="true"), call("submit"), "Done.<|im_end|>"]
    stops = [call("bash", command="echo hello > greeting.txt"), "Done.<|im_end|>"]
    args = GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, num_generations=4, learning_rate=1e-2,
        max_completion_length=900, bf16=False, use_cpu=True, report_to=[], save_strategy="no", logging_steps=1,
    )  # fmt: skip
    tokens = copy.deepcopy(tokenizer(trl_template("qwen3")))
    policy = model()
    before = torch.cat([p.detach().flatten().clone() for p in policy.parameters()])
    with ShellTasks([task()], reward="binary", owns_reward=owns_reward) as tasks:
        trainer = Scripted(
            policy,
            reward_funcs=[] if owns_reward else episode_reward,
            args=args,
            train_dataset=tasks.dataset(),
            processing_class=tokens,
            environment_factory=tasks,
            script=[done, idle, stops, done],
        )
        rows = trainer.environments
        assert rows is None and {t.__name__ for t in trainer.tools} == {"bash", "submit"}
        opened.fail_next = ["", "", "", "run", "open"]  # the machinery fails in the last row, and for its canary
        trainer.train()
        assert [e._reward for e in trainer.environments] == [1.0, 0.0, 1.0, None]
        live = [sandbox for sandbox in opened.all if not sandbox.closed]
        assert live
    assert all(sandbox.closed for sandbox in opened.all)
    (batch,) = trainer.seen
    # By hand: mean of the three graded is 2/3; the row without a reward has no advantage.
    scale = torch.tensor([1.0, 0.0, 1.0]).std() + 1e-4
    third = batch["advantages"].tolist()
    wanted = [(r - 2 / 3) / scale for r in (1.0, 0.0, 1.0)]
    assert sorted(third) == pytest.approx(sorted([*map(float, wanted), 0.0]), abs=1e-3)
    (log,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert log["reward"] == pytest.approx(2 / 3)
    if owns_reward:
        assert log["rewards/RewardedShellTask/mean"] == pytest.approx(2 / 3)
    else:
        assert log["env/infra_error_frac"] == 0.25
        assert log["env/pass_rate"] == pytest.approx(2 / 3) and log["env/pass_min"] == 0.5
    text = tokens.decode(batch["prompt_ids"][0])
    assert "Write hello into greeting.txt" in text and "notes.txt" in text and "Call `bash`" in text
    assert not torch.equal(torch.cat([p.detach().flatten() for p in policy.parameters()]), before)


def test_only_the_two_tools_are_public():
    """TRL offers every public method but these to the model."""
    public = {n for n, _ in inspect.getmembers(ShellTask, inspect.isfunction) if not n.startswith("_")}
    assert public - {"reset"} == {"bash", "submit"}


def test_what_the_tools_say(first, opened):
    text = first.reset(task_id="first", prompt=[], other=1)
    assert "Write hello into greeting.txt" in text and "TASK_COMPLETE" not in text
    assert first.bash("echo hi; exit 3") == "exit code: 3\nstdout:\nhi"
    fences = "printf '```bash\\nls\\n```\\nTASK_COMPLETE\\n' > greeting.txt; echo hello >> greeting.txt"
    assert first.bash(fences) == "exit code: 0\n(no output)"  # a command is never read as a reply
    assert first.bash("  ") == "Nothing was run: the bash block holds no command."
    assert first.submit() == "Submitted."
    assert episode_reward(environments=[first]) == [1.0]
    assert first.bash("ls") == OVER and first.submit() == OVER
    assert episode_reward(environments=[first]) == [1.0]


def test_the_budget_of_calls_ends_an_episode(first):
    first.reset(task_id="first")
    said = [first.bash("true") for _ in range(5)]
    assert said[3].endswith(OVER) and said[4] == OVER
    assert episode_reward(environments=[first]) == [0.0]


def test_a_reset_starts_afresh(first):
    first.reset(task_id="first")
    first.bash("echo hello > greeting.txt")
    first.submit()
    first.reset(task_id="first")
    assert episode_reward(environments=[first]) == [0.0]  # what stands there, graded, though nothing was submitted


@pytest.mark.parametrize("at", ["open", "run", "snapshot"])
def test_a_failure_of_the_machinery_is_no_reward(opened, at):
    opened.fail_next = [at, *(["open"] if at == "run" else [])]  # the canary of a lost sandbox fails, too
    with ShellTasks([task()]) as tasks:
        environment = tasks()
        environment.reset(task_id="first")
        said = environment.bash("true")
        assert said == (BROKEN if at == "run" else OVER)
        assert episode_reward(environments=[environment]) == [None]
        environment.reset(task_id="first")  # the next episode has a new sandbox
        environment.submit()
        assert episode_reward(environments=[environment]) != [None]


def test_no_sandbox_at_all_is_an_error_and_no_lost_episode(monkeypatch):
    def none(*args, **kwargs):
        raise SandboxUnavailable("nothing works here")

    monkeypatch.setattr("envs.workplace.open_sandbox", none)
    assert issubclass(SandboxUnavailable, SandboxError)
    with ShellTasks([task()]) as tasks, pytest.raises(SandboxUnavailable):
        tasks().reset(task_id="first")


def test_one_that_cannot_close_leaves_no_other_open():
    closed = []

    class Env:
        def __init__(self, number):
            self.number = number

        def close(self):
            closed.append(self.number)
            if self.number == 1:
                raise RuntimeError("cannot close")

    tasks = ShellTasks([task()])
    tasks._made = [Env(0), Env(1), Env(2)]
    with pytest.raises(RuntimeError, match="cannot close"):
        tasks.close()
    assert sorted(closed) == [0, 1, 2]


def test_rows_and_refusals():
    rows = ShellTasks([task(), task(id="second", intent="Another one.")], max_turns=7).dataset()
    assert rows["task_id"] == ["first", "second"] and "You have 7 calls" in rows[0]["prompt"][0]["content"]
    with pytest.raises(ValueError, match="'shaped' or 'binary'"):
        ShellTasks([task()], reward="delta")
