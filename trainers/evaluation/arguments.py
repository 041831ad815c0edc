"""What `python -m trainers.evaluate` is told: its arguments, and which of them do not go together."""

from __future__ import annotations

import math
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from agents.policies.opening import PolicyKind, PolicyName, read_name
from agents.rollout import RolloutMode
from envs.protocol import PROTOCOLS
from envs.registry import environment_ids
from sandboxes.guard import Parser
from tasks.endpoints import PRICE
from trainers.rollouts.manner import AUTO, DEFAULT_ENV
from trainers.settings import EnvArguments
from trainers.settings.rollouts import RolloutFields

READS = {
    "concurrency": "concurrency",
    "timeout": "timeout",
    "retries": "retries",
    "request_body": "extra",
    "tokenizer": "tokenizer",
    "eos_ids": "eos_ids",
    "dtype": "dtype",
    "sample_dtype": "sample_dtype",
    "device": "device",
    "torch_threads": "device",
}
"""Arguments that only some policies look at, and what they are in `agents.policies.opening.PolicyWay.reads`."""
SHARED = frozenset({"concurrency", "timeout", "retries", "dtype", "sample_dtype", "device"})
"""Those that `--escalate MODEL2` gets as well."""
LEAST = {
    "samples": 1,
    "slots": 1,
    "max_tokens": 1,
    "concurrency": 1,
    "retries": 0,
    "limit": 0,
    "max_turns": 0,
    "max_episode_tokens": 0,
    "keep_observations": 0,
    "shots": 0,
    "top_k": 0,
    "sandbox_workers": 0,
    "torch_threads": 0,
    "escalate_turns": 1,
}
"""The smallest value of an argument, where it is given."""
DEFAULT_TASKS = "generated:quickstart?n=320&seed=1000"
TRAINING = EnvArguments.__dataclass_fields__
"""Settings that training has, too."""
JUDGING = ("agent_errors", "allow_exposed_judges", "allow_shared_judges", "verifier_network")
"""Those of them that go to the environment as they are."""


def build_parser() -> ArgumentParser:
    """All arguments with their help."""
    parser = Parser(
        prog="python -m trainers.evaluate",
        description="Measure a policy on tasks, or compare what was measured.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--model",
        default="quickstart",
        help="quickstart | smollm2 | a folder (model, adapter, run) | hub id | oracle | noop | human | "
        "openai:MODEL@URL | vllm:URL[,URL...][#NAME] | NAME[:REST] of your own",
    )
    add(
        "--tasks",
        action="append",
        help="a YAML file, a folder, library, generated:<family>?n=..&seed=.., gsm8k:PATH and the like; several with "
        f"commas between (default {DEFAULT_TASKS}, or the sample of the environment)",
    )
    add("--split", metavar="FILE", help="lock file of a split of --tasks: play every side, and compare them")
    _sampling_arguments(add)
    _judging_arguments(add)
    add("--limit", type=int, default=0, metavar="N", help="the first N tasks only (Mixed-v0: of every set in turn)")
    add(
        "--max_tokens",
        type=int,
        help="cap on one reply; default: what the policy was trained with, else 512 (questions: the set's)",
    )
    _escalation_arguments(add)
    _output_arguments(add)
    _environment_arguments(add)
    _policy_arguments(add)
    return parser


def _sampling_arguments(add: Callable[..., Any]) -> None:
    """How many replies are drawn, and how."""
    add("--samples", type=int, default=1, metavar="K", help="attempts per task; above 1 also pass@k")
    add("--temperature", type=float, nargs="+", metavar="T", help="one arm per temperature; 0 is greedy (default 1.0)")
    add(
        "--top_p",
        type=float,
        default=1.0,
        metavar="P",
        help="draw among the likeliest ids of this probability (1: all)",
    )
    add("--top_k", type=int, default=0, metavar="K", help="draw among so many of the likeliest ids (0: all)")
    add("--greedy", action="store_true", help="greedy decoding: alone, or beside --temperature")


def _judging_arguments(add: Callable[..., Any]) -> None:
    """Which judges count, and what they may have."""
    add(
        "--allow_in_process_judges",
        action="store_true",
        help="count tasks whose judge runs the agent's code in its own process, where that code can write the verdict",
    )
    for name in ("allow_exposed_judges", "allow_shared_judges"):
        add(f"--{name}", action="store_true", help=TRAINING[name].metadata["help"])
    network = TRAINING["verifier_network"].metadata["help"]
    add("--verifier_network", type=lambda name: None if name == "none" else name, metavar="NAME", help=network)


def _escalation_arguments(add: Callable[..., Any]) -> None:
    """A second model that takes over."""
    add(
        "--escalate",
        metavar="MODEL2",
        help="a second model that takes over episodes whose uncertainty stands still (a monitor says which): also how "
        "often, what passes without and with it, and the tokens of each",
    )
    add("--escalate_turns", type=int, default=3, metavar="N", help="turns in a row without a move that make one stuck")
    add(
        "--escalate_eta",
        type=float,
        metavar="NATS",
        help="least change of a turn's mean entropy that is a move (default: calibrated on the episodes)",
    )


def _output_arguments(add: Callable[..., Any]) -> None:
    """What is written, gone on with or compared."""
    add("--output_dir", help="where episodes and figures go (default runs/eval-<model>-<time>)")
    add(
        "--resume",
        action="store_true",
        help="go on with the evaluation in --output_dir, with its settings: play what is missing or was lost to the "
        "machinery",
    )
    add("--open", action="store_true", help="write the page of all episodes (python -m agents view), and open it")
    add("--price", **PRICE)
    add(
        "--all_checkpoints",
        action="store_true",
        help="--model is a run folder: measure its start and every checkpoint in it, one row each",
    )
    add(
        "--compare",
        nargs="+",
        metavar="FOLDER",
        help="evaluation or run folders, each against the first: difference, paired p-value and verdict; plays nothing",
    )


def _environment_arguments(add: Callable[..., Any]) -> None:
    """Where episodes are played, and how the policy is spoken to."""
    add("--env", help=f"{' | '.join(environment_ids())}; default: what the policy was trained in, else {DEFAULT_ENV}")
    add(
        "--no_tools",
        type=_switch,
        nargs="?",
        const=True,
        metavar="true|false",
        help="questions: the agent only answers, and runs no commands; default: as in training",
    )
    add(
        "--shots",
        type=int,
        metavar="N",
        help="GSM8K, MATH: solved examples before each question (0, 4, 8); default: those of training, or none",
    )
    add(
        "--shots_from",
        metavar="SOURCE",
        help="where --seed draws them: the training split, as --tasks names sources; or a trained policy's folder, for "
        "the examples that it was shown",
    )
    add("--revise", type=int, metavar="N", help="IFEval: times an answer may be revised; default: as in training")
    add("--sandbox", default="auto", help=TRAINING["sandbox"].metadata["help"])
    add("--max_turns", type=int, help="turns per episode; 0 takes each task's own budget; default: as in training")
    add(
        "--max_episode_tokens",
        type=int,
        metavar="N",
        help="tokens of an episode (prompt, replies, whole observations); 0: no budget; default: as in training",
    )
    add("--reward", default="shaped", help="shaped | binary | delta | one of your own")
    add("--agent_errors", default=TRAINING["agent_errors"].default, help=TRAINING["agent_errors"].metadata["help"])
    add("--prompt_style", default=AUTO, help="auto (what the policy was made for) | standard | compact | base")
    add("--protocol", default=AUTO, choices=[AUTO, *PROTOCOLS], help=TRAINING["protocol"].metadata["help"])
    add(
        "--keep_observations",
        type=int,
        metavar="N",
        help="a prompt shows the last N observations in full and each older one as a line; 0 shows all in full; "
        "default: as in training",
    )
    add("--seed", type=int, default=0, help="of the samples; equal seeds, equal episodes")
    add(
        "--user",
        metavar="openai:MODEL@URL",
        help="ClawGym-v1: a model that reads the agent's messages in the place of the tasks' patterns",
    )


def _policy_arguments(add: Callable[..., Any]) -> None:
    """How many episodes at a time, and what only some policies look at."""
    add("--slots", type=int, default=32, help="episodes in flight at a time (human: one)")
    add(
        "--sandbox_workers",
        type=int,
        default=0,
        help="threads that step environments in lockstep, and lay out tasks; 0 = number of cores",
    )
    add(
        "--rollout_mode",
        choices=[*RolloutMode],
        default=RolloutMode.AUTO,
        help=RolloutFields.__dataclass_fields__["rollout_mode"].metadata["help"],
    )
    add("--dtype", default="float32", help="float32 | bfloat16 | float16 | auto")
    add(
        "--sample_dtype",
        help="sample from a copy in this type, adapters merged; auto: the machine's fastest (default: no copy)",
    )
    add("--device", default="auto", help="auto (a GPU if there is one) | cpu | cuda")
    add("--torch_threads", type=int, default=0, help="0 = one for a small policy, else all cores")
    add("--concurrency", type=int, help="openai, vllm: requests under way at a time (default 8; vllm 64)")
    add("--timeout", type=float, metavar="S", help="openai, vllm: seconds to wait, per attempt (default 300; vllm 600)")
    add(
        "--retries",
        type=int,
        metavar="N",
        help="openai, vllm: attempts after the first, with waits that double up to a minute (default 10: four minutes)",
    )
    add(
        "--request_body",
        metavar="JSON",
        help='openai: more of each request, such as \'{"reasoning_effort": "low"}\'; null leaves a key out, such as '
        "'{\"seed\": null}' (vllm, too)",
    )
    add(
        "--eos_ids", type=int, nargs="+", metavar="ID", help="vllm: ids that end a turn; default: what its folder names"
    )
    add("--tokenizer", help="vllm: folder or hub id; default: what the server serves, if that is a folder here")


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ArgumentTypeError(f"true or false, not {text!r}")
    return text == "true"


def check_arguments(arguments: Namespace, parser: ArgumentParser, named: PolicyName) -> None:
    """Refuse arguments that do not go with the policy.

    Raises:
        ValueError: One would do nothing, is no value that it can have, or cannot work with a chat endpoint.
    """
    # The second model gets these, too, but nothing that is about one server alone (tokenizer, keys of requests).
    second = frozenset() if arguments.escalate is None else read_name(arguments.escalate).way.reads & SHARED
    for name, read in READS.items():
        if read not in named.way.reads | second and getattr(arguments, name) != parser.get_default(name):
            raise ValueError(f"--{name} does nothing with --model {arguments.model}: leave it out")
    for name, least in LEAST.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}: at least {least}")
    if arguments.timeout is not None and not 0 < arguments.timeout < threading.TIMEOUT_MAX:
        raise ValueError(f"--timeout is {arguments.timeout:g}: a number of seconds above 0")
    if any(token < 0 for token in arguments.eos_ids or ()):
        raise ValueError("--eos_ids must not be negative")
    if not all(0 <= value < math.inf for value in arguments.temperature or ()):
        raise ValueError("--temperature must be a number and not negative (0 is greedy)")
    tuned = any(getattr(arguments, name) != parser.get_default(name) for name in ("escalate_turns", "escalate_eta"))
    if arguments.escalate is None and tuned:
        raise ValueError("--escalate_turns and --escalate_eta do nothing without --escalate MODEL2: leave them out")
    if arguments.escalate_eta is not None and not 0 < arguments.escalate_eta < math.inf:
        raise ValueError(f"--escalate_eta is {arguments.escalate_eta}: a number of nats above 0")
    if arguments.escalate is not None and named.kind in (PolicyKind.OPENAI, PolicyKind.HUMAN):
        raise ValueError(
            f"--escalate: a monitor reads how unsure each token was, and {arguments.model} does not report it. Name a "
            "model with weights here or vllm:URL as --model; --escalate may be anything"
        )
    if named.kind is PolicyKind.OPENAI and arguments.prompt_style == "base":
        raise ValueError("--prompt_style base is one running text, and a chat endpoint takes messages: leave it out")


def check_body(body: Mapping[str, Any], arguments: Namespace) -> None:
    """Refuse arguments that a key which is left out makes void.

    Raises:
        ValueError: There is one.
    """
    if "temperature" in body and body["temperature"] is None and (arguments.temperature or arguments.greedy):
        named = "--greedy" if arguments.greedy else "--temperature"
        raise ValueError(f"{named} does nothing where --request_body leaves the temperature out: leave one of them out")
