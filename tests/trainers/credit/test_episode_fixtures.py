"""Episode operators, cap, normalising and ties against the reference implementations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.credit.fixtures import block, cases, padded
from trainers.credit import EpisodeOperator, EpisodeScale, advantage_bound, episode_advantages
from trainers.credit.episode import discover, entropic_beta, entropic_kl, maxrl
from trainers.credit.metrics import tied_pairs
from trainers.credit.pipeline import batch_norm, cap_advantages


def near(case, got):
    wanted = np.asarray(case["expected"], dtype=float)
    assert np.asarray(got) == pytest.approx(wanted, abs=case["abs_tol"]), case["id"]


def by_groups(inputs, scale=EpisodeScale.NONE, operator=EpisodeOperator.GRPO, eps=1e-4):
    out, rewards = [], list(inputs["rewards"])
    for size in inputs.get("group_sizes", [len(rewards)]):
        group, rewards = rewards[:size], rewards[size:]
        out += episode_advantages(group, max(1, size), scale, operator=operator, eps=eps).tolist()
    return out


@pytest.mark.parametrize("group", ["episode.grpo_centered", "episode.drgrpo"])
@pytest.mark.parametrize("operator", [EpisodeOperator.GRPO, EpisodeOperator.DR_GRPO])
def test_centred(group, operator):
    for case in cases(group):
        near(case, by_groups(case["inputs"], operator=operator))


def test_std_is_ours_over_the_population_spread():
    """The references divide by the population deviation; ours is TRL's sample deviation: sqrt((N-1)/N) of theirs."""
    for case in cases("episode.grpo_std"):
        got, rewards = by_groups(case["inputs"], EpisodeScale.GROUP, eps=1e-12), case["inputs"]["rewards"]
        sizes = np.repeat(*2 * [case["inputs"].get("group_sizes", [len(rewards)])])
        population = got * np.sqrt(sizes / np.maximum(1, sizes - 1))
        assert population == pytest.approx(np.asarray(case["expected"]), abs=max(case["abs_tol"], 1e-6)), case["id"]


def test_maxrl():
    for case in cases("episode.maxrl"):
        i = case["inputs"]
        if "N" in i:
            for row in case["expected"]:
                n, k = row["N"], row["K"]
                got = maxrl(np.array([[1.0] * k + [0.0] * (n - k)]), i["eps"])[0]
                for value, wanted in ((got[0], row["A_correct"]), (got[-1], row["A_incorrect"])):
                    if wanted is not None:
                        assert value == pytest.approx(wanted, abs=case["abs_tol"])
        elif not i["rewards"]:
            assert episode_advantages([], 1, operator=EpisodeOperator.MAXRL).tolist() == case["expected"]
        else:
            near(case, maxrl(np.array([i["rewards"]], dtype=float), i.get("eps", 1e-6))[0])
            if "eps" not in i:
                near(case, by_groups(i, operator=EpisodeOperator.MAXRL))


def test_discover():
    for case in cases("episode.discover_entropic"):
        i, wanted = case["inputs"], case["expected"]
        rewards, kl = np.array(i["rewards"], dtype=float), i.get("target_kl", 0.2)
        got = discover(rewards[None], kl, i.get("beta"))[0]
        assert got == pytest.approx(np.array(wanted["advantages"]), abs=case["abs_tol"]), case["id"]
        if np.ptp(rewards):
            beta = i.get("beta") or entropic_beta(rewards, kl)
            assert entropic_kl(rewards, beta) == pytest.approx(wanted["kl"], abs=case["abs_tol"])


def test_batch_norm_by_mask_is_the_references_by_value_there():
    for case in cases("episode.reinforce_pp"):
        rows = case["inputs"]["all_advantages"]
        values, _ = padded(rows)
        normed, figures = batch_norm(values, values != 0)
        wanted = case["expected"]
        for got, row in zip(normed, wanted["advantages"], strict=True):
            assert got[: len(row)] == pytest.approx(np.array(row), abs=case["abs_tol"])
        reference = [wanted["metrics"][f"batch_adv_{name}"] for name in ("mean", "std")]
        assert [*figures.values()] == pytest.approx(reference, abs=case["abs_tol"])


def test_batch_norm_keeps_an_advantage_that_happens_to_be_zero():
    normed, _ = batch_norm(np.array([[1.0, 0.0, -1.0, 9.0]]), np.array([[True, True, True, False]]))
    assert normed[0] == pytest.approx(np.array([1.0, 0, -1.0, 0]) * np.sqrt(1.5), abs=1e-6)


def test_cap():
    for case in cases("adv_cap"):
        i, wanted = case["inputs"], case["expected"]
        if case["id"] == "grpo_bound":
            for g, centred, over_mean in zip(i["G"], wanted["centered_max"], wanted["maxrl_max"], strict=True):
                assert advantage_bound(EpisodeOperator.GRPO, EpisodeScale.NONE, g) == centred
                assert advantage_bound(EpisodeOperator.MAXRL, EpisodeScale.NONE, g) == over_mean
        elif case["id"] == "cap_not_noop_with_std_norm":
            bound = advantage_bound(EpisodeOperator.GRPO, EpisodeScale.GROUP, i["N"])
            assert bound == pytest.approx(wanted["A_correct_sample_std"])
            one_of_n = [1.0, *[0.0] * (i["N"] - 1)]
            assert episode_advantages(one_of_n, i["N"], EpisodeScale.GROUP, eps=0).max() == pytest.approx(bound)
        else:
            capped, figures = cap_advantages(padded(i["advantages"])[0], i["cap"])
            for got, row in zip(capped, wanted["advantages"], strict=True):
                assert got[: len(row)] == pytest.approx(np.array(row), abs=case["abs_tol"])
            assert figures["credit/capped_frac"] == pytest.approx(wanted["cap_fraction"])
            assert figures["credit/capped_magnitude"] == pytest.approx(wanted["cap_magnitude"])


def test_reward_ties():
    for case in cases("reward_ties"):
        wanted = case["expected"]
        if "groups" in case["inputs"]:
            ties = [tied_pairs(group) for group in case["inputs"]["groups"]]
            rate = sum(tied for tied, _ in ties) / max(1, sum(pairs for _, pairs in ties))
            assert rate == pytest.approx(wanted["tie_pair_rate"])
            continue
        tied, pairs = tied_pairs(case["inputs"]["rewards"])
        assert (tied, pairs) == (wanted["tied_pairs"], wanted["total_pairs"])
        assert (tied > 0, tied == pairs > 0) == (wanted["has_tie"], wanted["is_uniform"])


def test_verl_grpo_is_ours_over_rows_or_over_one_row_per_trajectory():
    """Rows as entries: cross. Means of rows as entries: per trajectory. A group of one: 0, where theirs is raw."""
    for case in block("verl_grpo_adv"):
        for uid in dict.fromkeys(case["uid"]):
            rows = [i for i, u in enumerate(case["uid"]) if u == uid]
            scores = [case["scores"][i] for i in rows]
            if len(rows) == 1:
                assert episode_advantages(scores, 1).tolist() == [0.0]
                continue
            for key, scale in (("nostd_cross", EpisodeScale.NONE), ("std_cross", EpisodeScale.GROUP)):
                got = episode_advantages(scores, len(rows), scale, eps=1e-6)
                assert got == pytest.approx([case[key][i] for i in rows], abs=5e-6), case["name"]
            trajectories = list(dict.fromkeys(case["traj"][i] for i in rows))
            means = [np.mean([case["scores"][i] for i in rows if case["traj"][i] == t]) for t in trajectories]
            got = episode_advantages(means, len(means), EpisodeScale.GROUP, eps=1e-6)
            value = dict(zip(trajectories, got, strict=True))
            # A row's own score is compared with the spread of the trajectories' means.
            spread = np.std(means, ddof=1)
            for i in rows:
                wanted = case["std_per_traj"][i]
                ours = value[case["traj"][i]] + (case["scores"][i] - means[trajectories.index(case["traj"][i])]) / (
                    spread + 1e-6
                )
                assert ours == pytest.approx(wanted, abs=5e-6), case["name"]


@pytest.mark.parametrize("operator", list(EpisodeOperator))
def test_every_operator_keeps_the_rules_of_a_group(operator):
    got = episode_advantages([1.0, None, 0.0, 0.5, 9.9, 9.9, 9.9, 9.9, None, None, None, 1.0], 4, operator=operator)
    assert got[1] == 0 and not got[4:].any()
    assert got[0] > got[3] > got[2] and np.isfinite(got).all()
    with pytest.raises(ValueError, match="finite"):
        episode_advantages([1.0, float("nan")], 2, operator=operator)
