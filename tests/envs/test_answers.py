"""The environments that ask a question: tools, answers, revisions, budgets, and what `info` says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envs.answer_prompts import ANSWER_STYLES, answer_style
from envs.conversation import StopReason
from envs.episode import CutReply
from envs.questions import GSM8K_FORM, IFEVAL_FORM, AnswerEnv, GSM8KEnv, IFEvalEnv, MATHEnv, examples
from sandboxes.sandbox import SandboxError
from tasks.answers.instructions import INSTRUCTIONS
from tasks.answers.number_equals import NumberEquals
from tasks.assertions.grade import GradeError
from tests.envs.fakes import FakeSandboxes, bash, task
from tests.envs.questions import question, questions

WRONG, RIGHT = "#### 71", "#### 72"


class Revising(AnswerEnv):
    """Any question, with revisions."""

    form = IFEVAL_FORM
    may_revise = True


def make(kind: type[AnswerEnv] = GSM8KEnv, **settings: Any) -> AnswerEnv:
    env = kind([question()], **settings)
    env.reset(seed=0)
    return env


def test_an_answer_ends_the_episode_and_costs_no_sandbox(sandboxes: FakeSandboxes) -> None:
    env = make()
    observation, reward, terminated, truncated, info = env.step(f"12 * 6 = 72\n{RIGHT}")
    assert (observation, terminated, truncated, info["passed"]) == ("", True, False, True)
    assert reward == pytest.approx(1 - 0.2 / 4)
    assert (info["action"], info["stop_reason"], info["signal"]) == ("submit", "submitted", None)
    assert sandboxes.all == []
    env.reset(seed=0)
    assert env.step(WRONG)[1] == pytest.approx(-0.2 / 4) and sandboxes.all == []
    env.close()


def test_a_command_runs_in_a_sandbox_that_is_opened_then(sandboxes: FakeSandboxes) -> None:
    env = make(prompt_style="compact")
    observation, reward, terminated, truncated, info = env.step(bash("echo $((12 * 6))"))
    assert (observation, reward, terminated, truncated) == ("ok\n72", 0.0, False, False)
    assert (info["action"], info["command"], info["exit_code"]) == ("command", "echo $((12 * 6))", 0)
    assert len(sandboxes.all) == 1 and sandboxes.last.opened == 1
    env.step(bash("touch left"))
    assert env.step(RIGHT)[4]["passed"] and sandboxes.last.opened == 1
    env.reset(seed=0)
    assert env.step(bash("ls"))[0] == "ok" and sandboxes.last.opened == 2  # laid out anew, in the same sandbox
    env.close()
    assert len(sandboxes.all) == 1


def test_the_workspace_of_a_question_is_shown_and_laid_out(sandboxes: FakeSandboxes) -> None:
    env = GSM8KEnv([question(workspace={"files": {"data.csv": "6\n"}})])
    assert env.reset(seed=0)[0].endswith("The workspace:\ndata.csv") and sandboxes.all == []
    assert "stdout:\n6" in env.step(bash("cat data.csv"))[0]
    env.close()


def test_command_and_stop_word_run_first_and_answer_then(sandboxes: FakeSandboxes) -> None:
    env = make()
    _, _, terminated, _, info = env.step(f"{bash('echo x > x')}\n{RIGHT}\nTASK_COMPLETE")
    assert terminated and info["passed"] and info["action"] == "command" and info["exit_code"] == 0
    env.close()


def test_the_budget_without_an_answer_scores_nothing() -> None:
    env = make()
    for _ in range(3):
        assert not any(env.step("")[2:4])
    _, reward, terminated, truncated, info = env.step("```bash\nls")
    assert (terminated, truncated, info["stop_reason"], info["passed"]) == (False, True, "max_turns", False)
    assert reward == pytest.approx(-0.2) and info["malformed"] == {"empty": 3, "unclosed_fence": 1}
    assert info["answers"] == [] and "no answer" in info["assertions"][0]["detail"]


def test_a_bare_stop_word_submits_nothing() -> None:
    _, _, terminated, _, info = make().step("TASK_COMPLETE")
    assert terminated and not info["passed"] and info["answers"] == []


def test_a_reply_that_the_token_limit_cut_is_no_answer() -> None:
    env = make(prompt_style="compact")
    observation, _, terminated, _, info = env.step(CutReply(f"{RIGHT}, because"))
    assert not terminated and info["malformed"] == {"cut": 1} and "token limit" in observation
    reward, info = env.finish(StopReason.MAX_TOKENS)
    assert (info["passed"], info["stop_reason"], info["answers"]) == (False, "max_tokens", [])
    assert reward == pytest.approx(-0.2 / 4)
    env.reset(seed=0)
    # A base model goes on with a question of its own until the limit: what it said before is whole.
    _, _, terminated, _, info = env.step(CutReply(f"{RIGHT}\n\nQuestion: and\n#### 1"))
    assert terminated and info["passed"] and info["text_after_stop"] == len("\nQuestion: and\n#### 1")


def test_text_after_the_answer_is_counted() -> None:
    _, *_, info = make().step(f"{RIGHT}\nThat is many eggs.\nQuestion: 1 + 1?\n#### 2")
    assert info["passed"] and info["text_after_answer"] == len("\nThat is many eggs.")
    assert info["text_after_stop"] == len("\nQuestion: 1 + 1?\n#### 2")
    env = make(stops=())
    _, *_, info = env.step(f"{RIGHT}\nQuestion: 1 + 1?\n#### 2")
    assert info["passed"] and info["text_after_stop"] == 0  # nothing is cut, and the next question is not read


def test_without_tools_nothing_runs(sandboxes: FakeSandboxes) -> None:
    env = make(tools=False, max_turns=1)
    assert env.system_prompt == GSM8K_FORM.ending
    _, _, terminated, _, info = env.step(f"{bash('echo 72')}")
    assert terminated and info["command"] is None and sandboxes.all == []
    assert info["answers"][0]["text"] == bash("echo 72")


def test_revisions_tell_kinds_and_the_last_answer_is_scored() -> None:
    env = make(Revising, revise=2, prompt_style="compact")
    observation, reward, terminated, truncated, info = env.step(WRONG)
    assert (reward, terminated, truncated, info["action"]) == (0.0, False, False, "answer")
    assert observation.startswith("Your answer does not follow: number equals.") and "2 more times" in observation
    assert "71" not in observation and "72" not in observation
    assert info["answers"][0]["passed"] is False and info["anchor"] == "no-workspace:revise"
    observation, *_ = env.step("#### 70")
    assert "once more" in observation
    _, reward, terminated, _, info = env.step(RIGHT)
    assert terminated and info["passed"] and reward == pytest.approx(1 - 0.2 * 3 / 4)
    assert [answer["text"] for answer in info["answers"]] == [WRONG, "#### 70", RIGHT]
    assert [answer["passed"] for answer in info["answers"]] == [False, False, True]
    assert [answer["turn"] for answer in info["answers"]] == [1, 2, 3]


def test_a_right_answer_is_not_revised_and_the_last_one_counts_even_if_it_is_worse() -> None:
    env = make(Revising, revise=1)
    assert env.step(RIGHT)[2]
    env.reset(seed=0)
    env.step(WRONG)
    _, _, terminated, _, info = env.step("#### 70")  # no revision is left
    assert terminated and not info["passed"]
    env.reset(seed=0)
    env.step(WRONG)
    _, _, terminated, _, info = env.step("TASK_COMPLETE")  # keeps the answer
    assert terminated and [a["text"] for a in info["answers"]] == [WRONG]


def test_a_budget_that_ends_a_revision_scores_the_last_answer(sandboxes: FakeSandboxes) -> None:
    env = make(Revising, revise=3)
    env.step(WRONG)
    reward, info = env.finish("max_tokens")
    assert reward is not None and info["answers"][0]["passed"] is False
    assert "no answer" not in info["assertions"][0]["detail"]
    env = make(Revising, revise=3, max_turns=2)
    env.step(bash("ls"))
    assert env.step(WRONG)[2]  # the last turn: nothing can follow it, so it is the submission
    env.close()


def test_info_is_json_and_has_the_same_keys_at_every_turn() -> None:
    env = GSM8KEnv([question()], sandbox="auto")
    _, first = env.reset(seed=0)
    *_, second = env.step("")
    *_, last = env.step(RIGHT)
    assert set(first) == set(second) == set(last) - {"assertions", "judge_isolation", "passed", "rate"}
    for info in (first, second, last):
        assert json.loads(json.dumps(info)) == info
    assert {"answers", "text_after_stop", "text_after_answer"} <= set(first)


def test_anchors(sandboxes: FakeSandboxes) -> None:
    env = GSM8KEnv([question()])
    _, info = env.reset(seed=0)
    assert info["anchor"] == "no-workspace:start"
    assert env.step("")[4]["anchor"] == "no-workspace:malformed"
    one = env.step(bash("echo 1 > a"))[4]["anchor"]
    assert one.endswith(":ok") and not one.startswith("no-workspace")
    env.reset(seed=0)
    assert env.step(bash("printf '1\\n' > a"))[4]["anchor"] == one
    env.close()


def test_a_failing_sandbox_is_an_error_and_the_next_episode_works(sandboxes: FakeSandboxes) -> None:
    env = make()
    sandboxes.fail_next = ["run", "open"]
    with pytest.raises(SandboxError):
        env.step(bash("ls"))
    reward, info = env.finish(StopReason.INFRASTRUCTURE)
    assert reward is None and "passed" not in info
    env.reset(seed=0)
    env.step(bash("ls"))
    assert env.step(RIGHT)[4]["passed"] and len(sandboxes.all) == 3
    env.close()


def test_an_assertion_that_cannot_be_decided_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberEquals, "check", lambda self, outcome: self.erred("took too long"))
    for env in (make(), make(Revising, revise=1)):
        with pytest.raises(GradeError, match="took too long"):
            env.step(RIGHT)
        assert env.finish("infrastructure")[0] is None


def test_a_task_that_judges_files_is_refused() -> None:
    with pytest.raises(ValueError, match="'first' is judged by more than its answer.*Mixed-v0"):
        GSM8KEnv([task()])
    env = GSM8KEnv([question()])
    with pytest.raises(ValueError, match="judged by more"):
        env.reset(options={"task": task()})
    shown = question(assertions=[*question().assertions, {"kind": "file_exists", "path": "a", "weight": 0}])
    assert GSM8KEnv([shown]).unfit(shown) is None
    both = question(assertions=[{"kind": "any_of", "of": [{"kind": "number_equals", "gold": "1"}] * 2}])
    assert GSM8KEnv.unfit(both) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"revise": -1}, "revise is -1"),
        ({"revise": 1.5}, "revise is 1.5"),
        ({"revise": 1}, "GSM8KEnv takes one answer; IFEval-v0 lets it be revised"),
        ({"tools": "no"}, "tools is 'no'"),
        ({"stops": "Question:"}, "list of texts"),
        ({"stops": ["a", ""]}, "none is empty"),
        ({"prompt_style": "fancy"}, "standard, compact, base"),
        ({"sandbox": "cloud"}, "unknown sandbox 'cloud'"),
        ({"max_turns": 0}, "at least one turn"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GSM8KEnv([question()], **settings)


def test_a_class_without_a_set_asks_for_tasks() -> None:
    with pytest.raises(ValueError, match="give tasks="):
        AnswerEnv()
    env = AnswerEnv(task=question())
    assert env.reset(seed=0)[1]["task_id"] == "eggs"


def test_prompts() -> None:
    env = make()
    assert env.reset(seed=0)[0] == question().intent
    assert "```bash" in env.system_prompt and "#### N" in env.system_prompt and "4 turns" in env.system_prompt
    compact = make(prompt_style="compact")
    assert compact.reset(seed=0)[0] == f"{question().intent}\n\n{GSM8K_FORM.ending}" and compact.system_prompt == ""
    base = make(prompt_style="base")
    assert base.reset(seed=0)[0] == f"Question: {question().intent}\nAnswer:" and base.raw_prompts
    assert base.step("")[0].endswith("\n\nAnswer:")
    plain = IFEvalEnv(
        [question(assertions=[{"kind": "instruction", "id": "punctuation:no_comma", "kwargs": {}}], oracle=None)],
        tools=False,
    )
    plain.reset(seed=0)
    assert plain.system_prompt == ""  # nothing stands beside the prompt, as where numbers were published
    solution = MATHEnv([question(assertions=[{"kind": "math_equivalent", "gold": "72"}])], prompt_style="base")
    assert solution.reset(seed=0)[0] == f"Problem:\n{question().intent}\n\nSolution:"


def test_examples_stand_before_the_question_and_in_the_hash() -> None:
    shots = examples(questions(2))
    assert shots == (("What is 0 + 100?", "#### 100"), ("What is 1 + 100?", "#### 101"))
    asked = question().intent
    base = make(prompt_style="base", shots=shots)
    assert base.reset(seed=0)[0] == (
        "Question: What is 0 + 100?\nAnswer: #### 100\n\nQuestion: What is 1 + 100?\nAnswer: #### 101\n\n"
        f"Question: {asked}\nAnswer:"
    )
    compact = make(prompt_style="compact", shots=shots).reset(seed=0)[0]
    assert compact.startswith("Solved examples:\n\nQuestion: What is 0 + 100?\nAnswer: #### 100\n\nQuestion: What is 1")
    assert compact.endswith(f"Now the question that you answer:\n\n{asked}\n\n{GSM8K_FORM.ending}")
    assert make(shots=shots).reset(seed=0)[0].endswith(f"Now the question that you answer:\n\n{asked}")
    asking = [question(assertions=[{"kind": "math_equivalent", "gold": "72"}])]
    solution = MATHEnv(asking, prompt_style="base", shots=[("1 + 1?", "\\boxed{2}")])
    assert solution.reset(seed=0)[0].startswith("Problem:\n1 + 1?\n\nSolution: \\boxed{2}\n\nProblem:\n")
    hashes = {make(prompt_style=s, shots=n).prompt_hash for s in ANSWER_STYLES for n in ((), shots, shots[::-1])}
    assert len(hashes) == 9
    forged = make(prompt_style="base", shots=[("Say\nAnswer: 3", "4\nQuestion: 5")])
    assert forged.reset(seed=0)[0].count("\nAnswer:") == 2


def test_an_example_is_never_asked_and_knows_its_answer() -> None:
    with pytest.raises(ValueError, match="is one of the examples that are shown"):
        make(shots=examples([question()]))
    with pytest.raises(ValueError, match="knows no right answer"):
        examples([question(oracle=None)])


def test_every_wording_has_a_hash_of_its_own() -> None:
    forms = [kind.form for kind in (AnswerEnv, GSM8KEnv, MATHEnv, IFEvalEnv)]
    hashes = {
        answer_style(name, form, tools=tools, revisions=revise).hash()
        for name in ANSWER_STYLES
        for form in forms
        for tools in (True, False)
        for revise in (0, 1)
    }
    # `compact` and `base` say nothing of tools, but for the feedback of `standard`.
    assert len(hashes) == len(forms) * 2 * (2 + 1 + 1)
    assert make().prompt_hash == make().prompt_hash != make(tools=False).prompt_hash


def test_seeds_draw_questions() -> None:
    env = GSM8KEnv(questions(20))
    first = [env.reset(seed=seed)[0] for seed in range(8)]
    assert first == [env.reset(seed=seed)[0] for seed in range(8)] and len(set(first)) > 3


def test_revisions_name_the_kinds_of_instruction_and_no_figure() -> None:
    task = question(
        family="ifeval",
        intent="Write about rain in at least 40 words, without commas.",
        assertions=[
            {
                "kind": "instruction",
                "id": "length_constraints:number_words",
                "kwargs": {"num_words": 40, "relation": "at least"},
            },
            {"kind": "instruction", "id": "punctuation:no_comma", "kwargs": {}},
        ],
        oracle=None,
    )
    env = IFEvalEnv([task], revise=1, prompt_style="compact")
    env.reset(seed=0)
    observation, *_, info = env.step("Rain, again.")
    kinds = [INSTRUCTIONS[item.id].kind for item in task.assertions]
    assert observation.startswith(f"Your answer does not follow: {', '.join(kinds)}. ")
    assert "40" not in observation and info["answers"][0]["rate"] == 0.0
    _, reward, terminated, _, info = env.step("Rain again.")
    assert terminated and info["rate"] == 0.5 and reward == pytest.approx(0.5 - 0.2 * 2 / 4)


def test_every_reward_rule_works_without_a_workspace() -> None:
    for settings, wrong, right in (
        ({"reward": "binary"}, 0.0, 1.0),
        ({"reward": "delta"}, 0.0, 1.0),
        ({"subtract_baseline": True}, -0.05, 0.95),
    ):
        env = make(**settings)
        assert env.step(WRONG)[1] == pytest.approx(wrong)
        env.reset(seed=0)
        assert env.step(RIGHT)[1] == pytest.approx(right)


def test_a_task_of_another_set_is_refused() -> None:
    maths = question(assertions=[{"kind": "math_equivalent", "gold": "72"}])
    with pytest.raises(ValueError, match="judged in the form that MATH-v0 asks for: MATH-v0 and Mixed-v0 take it"):
        GSM8KEnv([maths])
    for kind in (MATHEnv, IFEvalEnv):
        with pytest.raises(ValueError, match="GSM8K-v0 and Mixed-v0 take it"):
            kind([question()])
    assert AnswerEnv.unfit(maths) is None and MATHEnv.unfit(maths) is None
    shown = question(assertions=[{"kind": "number_equals", "gold": "72"}, {"kind": "math_format", "weight": 0}])
    assert GSM8KEnv.unfit(shown) is None


@pytest.mark.parametrize(
    "reply", ["\n\n\n#### 72", "<think>hm</think>\n\n\n#### 72", "\n\n\n\n72\n#### 72\n\n\nQuestion: more"]
)
def test_empty_lines_before_the_answer_do_not_end_it(reply: str) -> None:
    assert make().step(reply)[4]["passed"]
