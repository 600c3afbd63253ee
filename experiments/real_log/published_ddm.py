"""A re-creation of the Deep Dynamics Model as published, for comparison only.

From J. Chrosniak, J. Ning and M. Behl, RA-L 9(6), 2024, and the settings of its released configuration for
the AV-21: a GRU of 3 layers of 15 over the last 15 samples, all outputs flattened, 2 dense layers of 188
with Mish, 17 coefficients through sigmoid guards, one explicit Euler step; mean squared error of
(vx, vy, yaw rate) one step ahead from recorded history, Adam 1e-3, batch 128. Coefficients are estimated
once and held when it predicts several steps. Written from the equations; no code of the authors.
"""

import functools

import jax
import jax.numpy as jnp
import optax

from s3jax.dynamics import layers
from s3jax.dynamics.base import VehicleState, move

HISTORY = 15
MASS, FRONT, REAR = 790.0, 1.248, 1.7328
GUARDS = {
    "Bf": (5, 30), "Cf": (0.5, 2), "Df": (100, 10_000), "Ef": (-2, 0),
    "Br": (5, 30), "Cr": (0.5, 2), "Dr": (100, 10_000), "Er": (-2, 0),
    "Cm1": (100, 10_000), "Cm2": (0, 1), "Cr0": (0.1, 1.4), "Cr2": (0.1, 1.0), "Iz": (500, 2000),
    "Shf": (-0.02, 0.02), "Svf": (-300, 300), "Shr": (-0.02, 0.02), "Svr": (-300, 300),
}  # fmt: skip


def init(key):
    """Returns fresh parameters."""
    keys = jax.random.split(key, 6)
    sizes = [7, HISTORY, HISTORY]
    return {
        "gru": [layers.gru_init(k, size, HISTORY) for k, size in zip(keys[:3], sizes, strict=True)],
        "dense": [layers.dense_init(keys[3], HISTORY * HISTORY, 188), layers.dense_init(keys[4], 188, 188)],
        "out": layers.dense_init(keys[5], 188, len(GUARDS)),
    }


def coefficients(params, scale, history):
    """Returns the guarded coefficients for a history [HISTORY, 7] of (vx, vy, r, T, delta, dT, ddelta)."""
    sequence = (history - scale[0]) / scale[1]
    for layer in params["gru"]:
        step = functools.partial(lambda layer, h, x: (layers.gru(layer, h, x),) * 2, layer)
        _, sequence = jax.lax.scan(step, jnp.zeros(HISTORY), sequence)
    hidden = sequence.reshape(-1)
    for layer in params["dense"]:
        hidden = jax.nn.mish(layers.dense(layer, hidden))
    places = jax.nn.sigmoid(layers.dense(params["out"], hidden))
    bounds = jnp.array(list(GUARDS.values()), jnp.float32)
    return dict(zip(GUARDS, bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * places, strict=True))


def euler(c, body, throttle, angle, dt):
    """Returns (vx, vy, yaw rate) one step later."""
    vx, vy, r = body
    front = angle - jnp.arctan2(FRONT * r + vy, jnp.abs(vx)) + c["Shf"]
    rear = jnp.arctan2(REAR * r - vy, jnp.abs(vx)) + c["Shr"]

    def lateral(slip, end):
        b, e = c[f"B{end}"], c[f"E{end}"]
        x = b * slip
        shaped = jnp.sin(c[f"C{end}"] * jnp.arctan(x - e * (x - jnp.arctan(x))))
        return c[f"Sv{end}"] + c[f"D{end}"] * shaped

    fyf, fyr = lateral(front, "f"), lateral(rear, "r")
    fx = (c["Cm1"] - c["Cm2"] * vx) * throttle - c["Cr0"] - c["Cr2"] * vx**2
    return jnp.stack(
        [
            vx + dt * ((fx - fyf * jnp.sin(angle)) / MASS + vy * r),
            vy + dt * ((fyr + fyf * jnp.cos(angle)) / MASS - vx * r),
            r + dt * (fyf * FRONT * jnp.cos(angle) - fyr * REAR) / c["Iz"],
        ]
    )


def table(columns):
    """Returns the features [T - 1, 7] of a log and its body states [T, 3]."""
    body = jnp.stack([columns["vx"], columns["vy"], columns["yaw_rate"]], axis=-1)
    inputs = jnp.stack([columns["pedal"], columns["steer_angle"]], axis=-1)
    return jnp.concatenate([body[:-1], inputs[:-1], jnp.diff(inputs, axis=0)], axis=-1), body


@functools.partial(jax.jit, static_argnums=(4, 5))
def train(key, features, body, starts, epochs, dt):
    """Fits to one-step windows whose first rows are `starts`; returns the parameters and input scale."""
    scale = (features.mean(0), features.std(0) + 1e-9)
    batches = len(starts) // 128
    params = init(key)
    optimiser = optax.adam(1e-3)

    def loss(params, batch):
        def one(start):
            window = jax.lax.dynamic_slice_in_dim(features, start, HISTORY)
            last = window[-1]
            c = coefficients(params, scale, window)
            predicted = euler(c, last[:3], last[3] + last[5], last[4] + last[6], dt)
            return jnp.mean((predicted - body[start + HISTORY]) ** 2)

        return jnp.mean(jax.vmap(one)(batch))

    def step(state, batch):
        params, memory = state
        value, gradient = jax.value_and_grad(loss)(params, batch)
        change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(params, change), memory), value

    def epoch(state, key):
        order = jax.random.permutation(key, starts)[: batches * 128].reshape(batches, 128)
        state, values = jax.lax.scan(step, state, order)
        return state, values.mean()

    (params, _), losses = jax.lax.scan(epoch, (params, optimiser.init(params)), jax.random.split(key, epochs))
    return params, scale, losses


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def predict(params, scale, features, state: VehicleState, start, steps, dt, refresh=False):
    """Predicts `steps` states after a history that begins at `start`, from the state at its end.

    With `refresh` the coefficients are estimated anew from the predicted states at every step.
    """
    window = jax.lax.dynamic_slice_in_dim(features, start, HISTORY)
    held = coefficients(params, scale, window)

    def body(loop, k):
        state, window = loop
        row = features[start + HISTORY - 1 + k]
        c = coefficients(params, scale, window) if refresh else held
        now = jnp.stack([state.vx, state.vy, state.yaw_rate])
        vx, vy, r = euler(c, now, row[3] + row[5], row[4] + row[6], dt)
        after = move(state, vx, vy, r, row[4] + row[6], dt)
        following = features[start + HISTORY + k].at[:3].set(jnp.stack([vx, vy, r]))
        return (after, jnp.concatenate([window[1:], following[None]])), after

    return jax.lax.scan(body, (state, window), jnp.arange(steps))[1]
