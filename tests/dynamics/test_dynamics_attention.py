import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.dynamics import attention
from s3jax.dynamics.attention import AttentionConfig
from s3jax.dynamics.base import Dynamics, History
from s3jax.dynamics.store import make_dynamics
from s3jax.spatial.state import VehicleState

SMALL = AttentionConfig(width=16, heads=2, layers=2, window=5)


def weights(config=SMALL):
    params = attention.encoder_init(jax.random.key(0), config)
    keys = iter(jax.random.split(jax.random.key(1), config.layers))
    for layer in params.values():  # the biases start at zero; a test of them needs others
        bias = layer["attention"]["age_bias"]
        layer["attention"]["age_bias"] = jax.random.normal(next(keys), bias.shape)
    return params


def test_cached_steps_equal_the_banded_pass():
    params, tokens = weights(), jax.random.normal(jax.random.key(2), (23, 16))
    whole, caches_after = attention.encode(params, SMALL, tokens)
    caches = tuple(attention.empty(SMALL) for _ in range(SMALL.layers))
    step = jax.jit(attention.encode_step, static_argnums=1)
    for i, token in enumerate(tokens):
        output, caches = step(params, SMALL, caches, i, token)
        np.testing.assert_allclose(output, whole[i], atol=1e-5)
    for a, b in zip(jax.tree.leaves(caches), jax.tree.leaves(caches_after), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_token_sees_its_windows_and_nothing_after_it():
    params, tokens = weights(), jax.random.normal(jax.random.key(3), (20, 16))
    jacobian = jax.jit(jax.jacobian(lambda t: attention.encode(params, SMALL, t)[0].sum(-1)))(tokens)
    seen = np.abs(np.asarray(jacobian)).sum(-1) > 0
    reach = SMALL.layers * (SMALL.window - 1)
    age = np.arange(20)[:, None] - np.arange(20)[None, :]
    np.testing.assert_array_equal(seen, (age >= 0) & (age <= reach))


@pytest.mark.parametrize("length", [3, 12])
@pytest.mark.parametrize("kind", ["transformer", "dytr"])
def test_a_warm_start_in_one_pass_equals_stepping_through_the_history(kind, length):
    model = make_dynamics({"kind": kind, "encoder": SMALL.dump()})
    params = model.init(jax.random.key(0))
    if kind == "dytr":
        shape = params["residual"]["weights"].shape
        params["residual"]["weights"] = jax.random.normal(jax.random.key(4), shape)
    keys = jax.random.split(jax.random.key(5), 3)
    fields = 0.3 * jax.random.normal(keys[0], (7, length + 1))
    states = VehicleState(*fields)._replace(vx=15.0 + fields[3])
    controls = jax.random.uniform(keys[1], (length, 2), minval=-1.0, maxval=1.0)
    frictions = jax.random.uniform(keys[2], (length, 2), minval=0.1, maxval=1.0)
    history = History(jax.tree.map(lambda f: f[:-1], states), controls, frictions)
    now = jax.tree.map(lambda f: f[-1], states)
    stepped = jax.jit(lambda: Dynamics.reset(model, params, now, history))()
    passed = jax.jit(lambda: model.reset(params, now, history))()
    for a, b in zip(jax.tree.leaves(stepped), jax.tree.leaves(passed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)
    step = jax.jit(lambda carry: model.step(params, carry, jnp.array([0.2, 0.3]), jnp.ones(2)))
    for _ in range(3):
        (stepped, a), (passed, b) = step(stepped), step(passed)
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match="3 heads do not divide a width of 16"):
        AttentionConfig.parse({"width": 16, "heads": 3})
