from __future__ import annotations

import pytest
import torch

from tasks.families.quickstart import ALL_WORDS
from trainers.warmstart.corpus import train_tokenizer
from trainers.warmstart.model import ModelShape, build_model

SMALL = ModelShape(hidden=32, layers=2, heads=4, feed_forward=48, context=64)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(ALL_WORDS)


def test_the_default_shape_is_about_a_million_parameters(tokenizer):
    model = build_model(tokenizer, ModelShape(), 0)
    assert 0.9e6 < sum(p.numel() for p in model.parameters()) < 1.3e6
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_alone(tokenizer):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = build_model(tokenizer, SMALL, 3).state_dict()
    assert torch.equal(torch.rand(1), expected)
    two, other = build_model(tokenizer, SMALL, 3).state_dict(), build_model(tokenizer, SMALL, 4).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(
        one["model.layers.0.self_attn.q_proj.weight"], other["model.layers.0.self_attn.q_proj.weight"]
    )


def test_the_maps_start_near_a_scaled_identity(tokenizer):
    shape = ModelShape(
        hidden=32, layers=1, heads=4, feed_forward=48, context=64, init_std=1e-4, qk_scale=0.9, ov_scale=0.3
    )
    attention = build_model(tokenizer, shape, 0).model.layers[0].self_attn
    q, k, v, o = (getattr(attention, f"{name}_proj").weight for name in "qkvo")
    torch.testing.assert_close(q.T @ k, 0.9 * torch.eye(32), atol=0.01, rtol=0)
    torch.testing.assert_close(o @ v, 0.3 * torch.eye(32), atol=0.01, rtol=0)


def test_scale_zero_leaves_the_maps_random(tokenizer):
    shape = ModelShape(hidden=32, layers=1, heads=4, feed_forward=48, context=64, qk_scale=0, ov_scale=0)
    attention = build_model(tokenizer, shape, 0).model.layers[0].self_attn
    assert (attention.q_proj.weight - attention.k_proj.weight).std() > shape.init_std


def test_a_width_that_heads_do_not_divide_is_refused(tokenizer):
    with pytest.raises(ValueError, match="no multiple"):
        build_model(tokenizer, ModelShape(hidden=30, heads=4), 0)
