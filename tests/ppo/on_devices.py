"""Trains on 1 and on 8 virtual devices in double precision; prints what a test needs as JSON.

A process of its own, because the number of virtual devices is fixed when JAX starts.
"""

import json
import os
import re

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.dynamics.bicycle import BicycleConfig
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.devices import SPREAD, WHOLE, make_mesh, place
from s3jax.ppo.learner import Learner
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.procedural import ProceduralConfig, generate

CONFIG = PPOConfig(
    num_envs=64,
    rollout=8,
    updates=10,
    minibatches=4,
    groups=8,
    actor_hidden=(16,),
    critic_hidden=(16,),
    memory=8,
)


def double(tree):
    return jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, tree)


def operands(text, kinds="all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"):
    """Returns the kind of each collective of a compiled program and the shapes that it moves."""
    found = []
    for shapes, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text):
        sizes = re.findall(r"\w+\[([\d,]*)\]", shapes)
        found.append((kind, [[int(n) for n in size.split(",") if n] for size in sizes]))
    return found


def count_compilations():
    """Returns a list that grows with each compilation from now on."""
    found = []

    def listen(event, _, **__):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return found


def train(devices):
    model = BicycleConfig().make()
    dynamics = jax.tree.map(np.asarray, model.init(jax.random.key(0)))
    bank = make_bank(generate(ProceduralConfig(count=32), 0, model.dt))
    mesh = make_mesh(jax.devices()[:devices])
    learner = Learner(CONFIG, TrackingEnv(EnvConfig(), model), mesh)
    world = World(place(mesh, double(bank), SPREAD), place(mesh, double(dynamics), WHOLE))
    state = jax.jit(lambda *x: double(learner.init(*x)), out_shardings=learner.shardings)(
        world, jax.random.key(0)
    )
    text = learner.update.lower(state, world).compile().as_text()
    state, metrics = learner.update(state, world)
    compiled = count_compilations()
    for _ in range(2):
        state, metrics = learner.update(state, world)
    result = jax.tree.map(
        np.asarray, (state.params, state.opt_state, state.normaliser, state.observation, metrics)
    )
    return result, {"collectives": operands(text), "compiled_again": len(compiled)}


jax.config.update("jax_enable_x64", True)
(one, alone), (eight, spread) = train(1), train(8)
difference = jax.tree.map(lambda a, b: float(np.max(np.abs(a - b))), one, eight)
print(
    json.dumps(
        {
            "difference": max(jax.tree.leaves(difference)),
            "moved": float(jnp.abs(one[0]["params"]["actor"]["dense_0"]["bias"]).max()),
            "parameters": len(jax.tree.leaves(one[0])),
            "alone": alone,
            "spread": spread,
        }
    )
)
