"""A run, checked and put together before a model loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agents.models.card import ModelCard, read_card
from agents.models.loading import ModelKind, ModelSource
from agents.t2po import T2POConfig
from envs.conversation import ConversationEnv
from envs.protocol import DEFAULT_PROTOCOL
from envs.questions import AnswerEnv, examples
from envs.registry import environment
from envs.rewards import RewardKind
from envs.sandboxed import ExposedJudge, refuse_exposed
from sandboxes import SandboxPool, SandboxUnavailable, open_sandbox
from tasks.images import refuse_missing_images
from tasks.model import TaskError
from tasks.place import refuse_unplaceable
from tasks.settings import problems
from tasks.sources import held_out_sources
from tasks.sources.questions import Coverage, self_test
from tasks.task import Task
from trainers.credit import EpisodeOperator
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.processes import is_main
from trainers.rollouts.curriculum import RulesError
from trainers.rollouts.manner import AUTO, SPOKEN, card_of_env, differences, insist, manner_of
from trainers.rollouts.rules import IN_PROCESS, VLLM, make_rules
from trainers.run.folder import GOES_ON, OCCUPIED, REPLACES, refuse_no_run, refuse_occupied, refuse_unwritable
from trainers.run.machine import environment_settings, unfit_task
from trainers.run.policy import find_policy, make_peft
from trainers.run.record import CONFIG, TASKS
from trainers.run.tasks import TaskSets, load_task_sets
from trainers.settings import EnvArguments, GiGPOConfig
from trainers.settings.checks import check_config, check_processes, config_notes, idle_settings, make_t2po
from trainers.settings.groups import UNSEEN, known_metrics, take_apart, unknown
from trainers.settings.parsing import RunSettings as Settings


@dataclass(frozen=True, slots=True)
class Run:
    """A checked run that has not loaded a model yet.

    Attributes:
        settings: As parsed.
        tasks: Pool and held-out.
        backend: The sandbox that was opened and works.
        images: Ids of the images in which it plays the tasks, by name.
        model_folder: Where the policy's files are; a hub id stays as it is.
        prompt_style: Of the environment's messages.
        sha256: Hash of the settings.
        t2po: The T2PO switches; `None` when all are off.
        peft: Settings of a new LoRA adapter; `None` trains all weights, or the adapter that `source` is.
        source: The policy, resolved.
        prompt_hash: Hash of what the environment says with these settings.
        coverage: What the gold self-test found, for people; empty where no task is a question.
        self_test: The same in figures.
        curriculum_notes: How the curriculum fits the pool.
        raw_prompts: The environment writes running text for a base model: no chat template goes around it.
        card: What the run's policies say about themselves.
        inherited: Settings that were taken from the policy's card, for people.
        protocol: How replies say what to do.
        shots: Solved examples before each question.
    """

    settings: Settings
    tasks: TaskSets
    backend: str
    model_folder: str
    prompt_style: str
    sha256: str
    t2po: T2POConfig | None
    peft: Any
    source: ModelSource
    prompt_hash: str = ""
    coverage: str = ""
    curriculum_notes: tuple[str, ...] = ()
    raw_prompts: bool = False
    self_test: Coverage | None = None
    card: ModelCard = ModelCard()
    inherited: tuple[str, ...] = ()
    protocol: str = DEFAULT_PROTOCOL
    shots: tuple[tuple[str, str], ...] = ()
    images: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def remarks(self) -> list[str]:
        """What a person may like to know as it starts, and need not act on."""
        return [*filter(None, (self.settings.preset.line(), self.coverage)), *self.inherited]

    def notes(self) -> list[str]:
        """What a person should know before it starts: about the tasks, and settings that do nothing."""
        c = self.settings.config
        idle_preset = "device_preset=auto does nothing: it chooses for a CUDA GPU, and here a CPU trains"
        greedy_arm = bool(self.tasks.measured) and c.held_out_greedy
        idle = idle_settings(
            self.settings.t2po,
            reply_cap(self),
            greedy_arm=greedy_arm,
            held_out=bool(self.tasks.measured),
            turns=most_turns(self),
        )
        return [
            *self.tasks.notes,
            *self.curriculum_notes,
            *idle_selection(c, self.tasks),
            *idle,
            *self.settings.policy.idle_settings(is_adapter=self.source.kind is ModelKind.ADAPTER),
            *config_notes(c),
            *budget_notes(self.settings),
            *([idle_preset] if self.settings.preset.idle else []),
        ]


def prepare(settings: Settings) -> Run:
    """Check everything that needs no model.

    Raises:
        ConfigError: A setting cannot work.
        TaskError: A task file is wrong.
        SandboxUnavailable: No sandbox works here; the message has the remedies.
        RunFolderError: The run folder is occupied.
    """
    if wrong := list(_setting_problems(settings)):
        raise ConfigError("\n".join(wrong))
    config, env = settings.config, settings.env
    folder = Path(config.output_dir)
    if is_main():
        _check_folder(config, folder)
    tasks = load_task_sets(env, config.seed, folder / TASKS if config.resume else None)
    curriculum_notes = read_rules(config, tasks.pool)
    check_metric(config, tasks)
    coverage = _check_tasks(env, tasks.everything)
    backend, images = _open_sandbox(env, tasks.everything)
    source = find_policy(settings.policy, dry_run=settings.dry_run)
    card = _read_card(source)
    inherited: list[str] = []
    if not (config.resume and (folder / CONFIG).exists()):  # else it goes on with the caps that it began with
        settings, inherited = _inherit(settings, card)
    shots: tuple[tuple[str, str], ...] = examples(tasks.shots)
    if not shots and card.environment == env.env and card.shots:
        shots = card.shots
        tasks = _without_shown(tasks, shots)
        inherited.append(f"shots: the {len(shots)} examples that the policy was shown before")
    run = Run(
        settings,
        tasks,
        backend,
        source.location,
        card.prompt_style if env.prompt_style == AUTO else env.prompt_style,
        settings.sha256(),
        make_t2po(settings.t2po),
        make_peft(settings.policy, source),
        source,
        coverage=coverage.text() if coverage else "",
        curriculum_notes=curriculum_notes,
        self_test=coverage,
        inherited=tuple(inherited),
        protocol=manner_of(card, env=env.env, protocol=env.protocol).protocol,
        shots=shots,
        images=images,
    )
    if config.sampler.startswith(VLLM) and run.peft is None and source.kind is not ModelKind.ADAPTER:
        raise ConfigError(
            f"sampler={config.sampler}: a running server takes LoRA adapters and no whole models. Train one "
            "(adapter=lora), or sample in process"
        )
    check_processes(config, run.t2po)
    if wrong := list(run.t2po.room_problems(reply_cap(run)) if run.t2po else ()):
        raise ConfigError(wrong[0])
    return _with_prompts(run, card)


def _without_shown(tasks: TaskSets, shots: Sequence[tuple[str, str]]) -> TaskSets:
    """The tasks without the pool's that are examples already.

    Raises:
        ConfigError: An example is among the tasks that are measured on.
    """
    shown = {question for question, _ in shots}
    if seen := [task.id for task in (*tasks.measured, *tasks.confirm) if task.intent in shown]:
        raise ConfigError(
            f"shots: {seen[0]} is measured on, and the policy is shown it solved before each question. Leave it out of "
            "what is held out (confirm is drawn from the pool: --confirm 0)"
        )
    pool = tuple(task for task in tasks.pool if task.intent not in shown)
    notes = list(tasks.notes)
    if left_out := len(tasks.pool) - len(pool):
        notes.append(f"{left_out} tasks of the pool are examples that the policy is shown, and were left out.")
    return replace(tasks, split=replace(tasks.split, pool=pool), notes=tuple(notes))


def _check_folder(config: GiGPOConfig, folder: Path) -> None:
    """Refuse a run folder that cannot be written as asked, before anything takes time."""
    if config.resume or config.overwrite:
        refuse_no_run(folder, how=GOES_ON if config.resume else REPLACES)
    else:
        refuse_occupied(folder, hint=OCCUPIED)
    refuse_unwritable(folder)


def _check_tasks(env: EnvArguments, tasks: Sequence[Task]) -> Coverage | None:
    """Refuse tasks that the environment cannot carry out, or whose verifiers cannot be trusted here."""
    if why := unfit_task(env.env, tasks):
        raise ConfigError(why)
    coverage = self_test(tasks)
    if coverage is not None and coverage.hopeless:
        raise ConfigError(f"tasks={env.tasks}: the verifiers cannot be trusted here: {coverage.text()}")
    return coverage


def _open_sandbox(env: EnvArguments, tasks: Sequence[Task]) -> tuple[str, Mapping[str, Sequence[str]]]:
    """The name of the sandbox that works here, and the ids of its images."""
    with open_sandbox(env.sandbox) as sandbox:
        sandbox.open({})
        probe = sandbox.run("echo ready")
        backend = sandbox.name
        try:
            refuse_unplaceable(tasks, sandbox.backend, env.verifier_network)
            images = refuse_missing_images(tasks, sandbox.name)
            refuse_exposed(tasks, sandbox, env.allow_exposed_judges)
        except (TaskError, ExposedJudge) as error:
            raise ConfigError(f"sandbox={env.sandbox}: {error}") from error
    if probe.exit_code != 0:
        raise SandboxUnavailable(f"sandbox {backend}: `echo ready` ended with {probe.exit_code}: {probe.stderr_text}")
    return backend, images


def _with_prompts(run: Run, card: ModelCard) -> Run:
    """The run with what its environment says; refused where the policy was trained with something else, unasked."""
    env = run.settings.env
    try:
        make = make_env_factory(run)
        made = make()
        run = replace(
            run,
            prompt_hash=made.prompt_hash,
            raw_prompts=made.raw_prompts,
            card=card_of_env(made, reply_cap(run), env.env, max_episode_tokens=env.max_episode_tokens) or ModelCard(),
        )
        other = [*differences(card, env.env, make), *_other_settings(env, card)]
        made.close()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if other and all(getattr(env, name) == AUTO for name in SPOKEN):
        raise ConfigError(f"model_name_or_path={run.source.name}: {insist(card, other)}")
    return run


def _read_card(source: ModelSource) -> ModelCard:
    if source.kind not in (ModelKind.FOLDER, ModelKind.ADAPTER):
        return ModelCard()
    try:
        return read_card(source.location)
    except ValueError as error:
        raise ConfigError(f"model_name_or_path={source.name}: {error}") from error


def _inherit(settings: Settings, card: ModelCard) -> tuple[Settings, list[str]]:
    """Take the caps from the policy's card that nobody asked for otherwise; says which."""
    env, t2po, said = settings.env, settings.t2po, "as the policy was trained before"
    notes: list[str] = []
    if card.environment != env.env:
        return settings, notes
    if t2po.max_turn_tokens is None and card.max_turn_tokens:
        t2po = replace(t2po, max_turn_tokens=card.max_turn_tokens)
        notes.append(f"max_turn_tokens={card.max_turn_tokens}: {said}")
    if not env.max_turns and card.max_turns:
        env = replace(env, max_turns=card.max_turns)
        notes.append(f"max_turns={card.max_turns}: {said}")
    if env.max_episode_tokens is None and card.max_episode_tokens:
        env = replace(env, max_episode_tokens=card.max_episode_tokens)
        notes.append(f"max_episode_tokens={card.max_episode_tokens}: {said}")
    if env.keep_observations is None and card.keep_observations is not None:
        env = replace(env, keep_observations=card.keep_observations)
        notes.append(f"keep_observations={card.keep_observations}: {said}")
    elif card.prompt_hash and env.keep_observations != card.keep_observations:
        was = "all observations in full" if card.keep_observations is None else f"the last {card.keep_observations}"
        notes.append(f"keep_observations={env.keep_observations}: the policy was shown {was} before")
    return replace(settings, env=env, t2po=t2po), notes


def _other_settings(env: EnvArguments, card: ModelCard) -> Iterator[str]:
    """Settings of questions that are not those the policy was trained with, each with how to have them again."""
    for name in ("tools", "revise"):
        was, now = getattr(card, name), getattr(env, name)
        if card.environment == env.env and was not in (None, now):
            yield f"it was trained with {name}={was}, and {name} is {now} (--{name} {str(was).lower()} is as before)"


def read_rules(config: GiGPOConfig, pool: Sequence[Task]) -> tuple[str, ...]:
    """What a person should know about the rules of the rollouts: how a curriculum fits the pool.

    Raises:
        ConfigError: They need something of the pool or of the processes that is not there.
    """
    try:
        curriculum = make_rules(config, pool, config.world_size).curriculum
    except RulesError as error:
        raise ConfigError(str(error)) from error
    return tuple(curriculum.notes) if curriculum else ()


def _setting_problems(settings: Settings) -> Iterator[str]:
    """Every setting that cannot work, one line each; they are all told at once."""
    config, env = settings.config, settings.env
    for check in (lambda: check_config(config), lambda: make_t2po(settings.t2po)):
        try:
            check()
        except ConfigError as error:
            yield str(error)
    yield from settings.t2po.problems()
    for part in (env, settings.policy):
        yield from problems(part)
    yield from settings.policy.policy_problems()
    copies = config.sampler == IN_PROCESS and not config.samples_with_itself
    yield from settings.policy.quantize_problems(copies=copies)
    if config.episode_operator == EpisodeOperator.MAXRL and (why := _negative_rewards(env)):
        yield f"episode_operator=maxrl: it divides by a group's mean reward, and {why}. Use reward=binary."
    if config.episode_operator == EpisodeOperator.GTPO and env.reward in set(RewardKind) - {RewardKind.BINARY}:
        yield (
            f"episode_operator=gtpo: it knows attempts that passed and attempts that failed, and reward={env.reward} "
            "says more than that. Use reward=binary."
        )
    for name in ("tasks", "held_out"):
        if not getattr(env, name):
            yield f"{name}: is empty; name a source of tasks, or leave it out."
    try:
        main = held_out_sources(env.held_out).main
    except ValueError as error:
        yield str(error)
    else:
        if main == "split" and env.held_out_fraction == 0 and env.unseen_families in ("", "0"):
            yield "held_out_fraction=0: held_out=split then holds out nothing. Use a share above 0, or held_out=none."
    try:
        environment(env.env)
    except ValueError as error:
        yield f"env={env.env}: {error}"


def _negative_rewards(env: EnvArguments) -> str | None:
    """How a reward can be below 0 with these settings; `None` where it cannot, or where only the user knows."""
    if env.reward == RewardKind.BINARY or env.reward not in tuple(RewardKind):
        return None  # of the user's own: `credit/maxrl_negative_frac` shows whether it is
    if env.reward == RewardKind.SHAPED and not env.subtract_baseline and env.turn_penalty == 0:
        return None
    how = f"turn_penalty={env.turn_penalty}" if not env.subtract_baseline else "subtract_baseline"
    how = "a rate that falls" if env.reward == RewardKind.DELTA else how
    return f"with reward={env.reward} rewards can be below 0 ({how})"


def check_metric(config: GiGPOConfig, tasks: TaskSets) -> None:
    """Refuse a deciding figure of tasks that the run does not have.

    Raises:
        ConfigError: It is of unseen families or of a set and there is none, or of trained families and none is held
            out.
    """
    if config.load_best_model_at_end and not tasks.measured:
        raise ConfigError("load_best_model_at_end: nothing is held out, so there is no best. Leave it out.")
    side, sets = take_apart(config.best_metric).side, [f"{name}_" for name in tasks.sets]
    sides = [*([""] if tasks.held_out else []), *([UNSEEN] if tasks.unseen else []), *sets]
    if f"{side}_" == UNSEEN and not tasks.unseen:
        raise ConfigError(
            f"best_metric={config.best_metric}: no family is unseen here. Set unseen_families with held_out=split, or "
            "use a lock that `python -m tasks split --unseen` wrote."
        )
    if side and f"{side}_" not in (UNSEEN, *sets):
        known = known_metrics(greedy=config.held_out_greedy, sides=sides or ("", UNSEEN))
        raise ConfigError(unknown(config.best_metric, known))
    if not side and tasks.measured and not tasks.held_out:
        only = "tasks of unseen families" if tasks.unseen else "named sets"
        raise ConfigError(
            f"best_metric={config.best_metric}: only {only} are held out. Use {sides[0]}{config.best_metric}."
        )


def idle_selection(config: GiGPOConfig, tasks: TaskSets) -> list[str]:
    """Settings of the held-out rule that do nothing in this run."""
    notes = []
    if config.held_out_samples > 1 and not tasks.measured:
        notes.append(f"held_out_samples={config.held_out_samples} does nothing: nothing is held out.")
    if config.patience and not tasks.measured:
        notes.append(f"patience={config.patience} does nothing: nothing is held out.")
    elif config.patience and config.eval_strategy == "no":
        notes.append(f"patience={config.patience} does nothing: nothing is measured in training (eval_strategy=no).")
    if config.load_best_model_at_end:
        notes.append("load_best_model_at_end changes nothing in the run folder: `best/` holds the chosen weights.")
    return notes


def budget_notes(settings: Settings) -> Iterator[str]:
    """What a token budget of episodes does together with another setting that one would not think of."""
    if settings.env.max_episode_tokens and settings.config.mask_truncated_completions:
        yield (
            "mask_truncated_completions leaves out the episodes that use up max_episode_tokens: nothing then teaches "
            "the policy to get by with them, and writing on costs less than failing. Leave one of the two out."
        )


def kept_note(config: GiGPOConfig) -> str | None:
    """Which checkpoints will be gone at the end, for who wants to measure them later; `None` where all stay."""
    keep = config.save_total_limit
    if config.save_strategy != "steps" or not keep:
        return None
    steps = sorted({*range(int(config.save_steps), config.max_steps + 1, int(config.save_steps)), config.max_steps})
    if len(steps) <= keep:
        return None
    return (
        f"of {len(steps)} checkpoints (steps {steps[0]} to {steps[-1]}) the last {keep} are kept, and best/; "
        "--save_total_limit 0 keeps all, to measure each afterwards"
    )


def more_text(tasks: TaskSets) -> str:
    """How many tasks of unseen families and of further sets are measured, for people; empty where there are none."""
    unseen = f", {len(tasks.unseen)} more of unseen families" if tasks.unseen else ""
    return unseen + "".join(f", {len(found)} more in {name}" for name, found in tasks.sets.items())


def reply_cap(run: Run) -> int:
    """Ids of one reply at most, for the sampler; each task's own budget caps it further."""
    largest = max(task.budget.turn_tokens for task in run.tasks.everything)
    return min(run.settings.t2po.max_turn_tokens or largest, largest)


def most_turns(run: Run) -> int:
    """Turns of an episode of the pool at most."""
    env = run.settings.env
    if env.max_turns:
        return env.max_turns
    if issubclass(environment(env.env), AnswerEnv) and not env.tools and not env.revise:
        return 1  # the reply is the answer
    return max(task.budget.max_turns for task in run.tasks.pool)


def make_env_factory(run: Run, sandboxes: SandboxPool | None = None) -> Callable[[], ConversationEnv]:
    """Opens one environment of the run. Its sandboxes come from the pool; without one it has a sandbox of its own."""
    env = run.settings.env
    kind: Callable[..., ConversationEnv] = environment(env.env)
    return partial(
        kind,
        tasks=list(run.tasks.pool[:1]),
        sandbox=sandboxes or run.backend,
        max_turns=env.max_turns,
        reward=env.reward,
        turn_penalty=env.turn_penalty,
        subtract_baseline=env.subtract_baseline,
        agent_errors=env.agent_errors,
        allow_exposed_judges=env.allow_exposed_judges,
        allow_shared_judges=env.allow_shared_judges,
        verifier_network=env.verifier_network,
        prompt_style=run.prompt_style,
        **environment_settings(
            env.env,
            tools=env.tools,
            revise=env.revise,
            keep_observations=env.keep_observations,
            protocol=run.protocol,
            shots=run.shots,
        ),
    )


def make_held_out(run: Run) -> HeldOut:
    """The held-out rule of the run."""
    return HeldOut.of(
        run.settings.config,
        run.tasks.held_out,
        unseen=run.tasks.unseen,
        sets=run.tasks.sets,
        max_turn_tokens=reply_cap(run),
        max_episode_tokens=run.settings.env.max_episode_tokens,
        goes_back=run.settings.start is not None,
    )
