"""Closed-loop driving: in step with the training environment, and honest about mishaps."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.dynamics.single_track import SingleTrackConfig
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.env.episodes import run_episodes
from s3jax.evaluation.closed_loop import FINISHED, LEFT_TRACK, SPUN, TIMED_OUT, Log, PolicyDriver, drive
from s3jax.scenarios.bank import make_bank
from s3jax.spatial.friction import friction_map
from s3jax.spatial.metrics import tracking_metrics
from s3jax.spatial.observation import ObservationSpec
from s3jax.spatial.reference import make_reference
from s3jax.spatial.state import VehicleState

DT = 0.05
MODEL = SingleTrackConfig().make()


def slalom(samples=160, speed=12.0):
    t = np.arange(samples) * DT
    yaw = 0.15 * np.sin(t)
    x, y = (np.cumsum(np.concatenate([[0.0], f(yaw[:-1]) * speed * DT])) for f in (np.cos, np.sin))
    return make_reference(x, y, yaw, np.full(samples, speed), DT)


def _bare_reading(time, state):
    return SimpleNamespace(
        time=time, state=state, ax=0.0, ay=0.0, friction=np.ones(4), throttle=0.0, brake=0.0
    )


class DistilledCar:
    """A source simulator that is the distilled model itself, through the environment's own start and step."""

    def __init__(self, env, world):
        self._env, self._world = env, world
        self._step = jax.jit(env.model.step)

    def reading(self, state):
        state = VehicleState(*(float(value) for value in state))
        self._time += DT
        return _bare_reading(self._time, state)

    def reset(self, pose, speed=0.0):
        self._time = -DT
        start, _ = self._env.start(self._world, 0)
        self._carry = start.carry
        return self.reading(start.vehicle)

    def step(self, control, dt):
        self._carry, state = self._step(
            self._world.dynamics, self._carry, jnp.asarray(control, jnp.float32), jnp.ones(2)
        )
        return self.reading(state)


def policy(observation):
    """Some smooth policy, the same expression in both worlds."""
    xp = jnp if isinstance(observation, jax.Array) else np
    error, control = observation[..., :3], observation[..., -2:]
    wanted = xp.stack([-0.2 * error[..., 0] - 1.2 * error[..., 1], -0.3 * error[..., 2]], axis=-1)
    return xp.tanh(3.0 * (wanted - control))


def test_the_driver_does_what_the_environment_does():
    def act(observation, memory):
        return policy(observation), memory

    reference = slalom()
    scenario = SimpleNamespace(dt=DT, reference=reference, friction=friction_map(1.0))
    bank = jax.tree.map(jnp.asarray, make_bank([scenario]))
    env, world = TrackingEnv(EnvConfig(), MODEL), World(bank, MODEL.init(jax.random.key(0)))
    episodes = jax.jit(lambda world: run_episodes(env, world, jnp.arange(1), act))(world)
    steps = int(episodes.active.sum())

    spec = SimpleNamespace(observation=env.config.observation, control_rate=env.config.control_rate, dt=DT)
    numpy_policy = type(
        "P",
        (),
        {"spec": spec, "reset": lambda _: None, "__call__": lambda _, observation: policy(observation)},
    )()
    driver = PolicyDriver(numpy_policy, reference)
    log = drive(
        DistilledCar(env, world), driver, reference, dt=DT, max_angle=0.6, half_width=3.0, max_time=20.0
    )
    assert log.end == FINISHED and log.completion == 1.0
    assert len(log.columns["time"]) == steps
    np.testing.assert_allclose(log.columns["steer"], _control(env, world, steps)[:, 0], atol=2e-4)
    for name in ("cross_track", "heading", "speed"):
        np.testing.assert_allclose(log.columns[name], getattr(episodes.error, name)[:steps, 0], atol=2e-3)


def _control(env, world, steps):
    """Steps the environment by hand and returns the controls that it applied, [T, 2]."""
    state, observation = env.start(world, 0)
    step, controls = jax.jit(env.step), []
    for _ in range(steps):
        result = step(world, state, policy(observation))
        state, observation = result.state, result.observation
        controls.append(np.asarray(state.history[-1, 4:]))
    return np.array(controls)


class Slider:
    """Goes straight on at constant speed, or turns its nose or stands still, whatever the driver does."""

    def __init__(self, yaw_rate=0.0, speed=10.0):
        self._yaw_rate, self._speed = yaw_rate, speed

    def reset(self, pose, speed=0.0):
        self._time = 0.0
        return self._reading()

    def step(self, control, dt):
        self._time += dt
        return self._reading()

    def _reading(self):
        yaw = self._yaw_rate * self._time
        vx, vy = self._speed * np.cos(yaw), -self._speed * np.sin(yaw)
        state = VehicleState(self._speed * self._time, 0.0, yaw, vx, vy, self._yaw_rate, 0.0)
        return _bare_reading(self._time, state)


def nobody():
    return SimpleNamespace(reset=lambda reading: None, control=lambda reading: np.zeros(2))


def curve():
    angle = np.arange(100) * DT * 10.0 / 30.0
    return make_reference(30 * np.sin(angle), 30 * (1 - np.cos(angle)), angle, 10.0, DT)


@pytest.mark.parametrize(
    ("car", "end"), [(Slider(), LEFT_TRACK), (Slider(yaw_rate=3.0), SPUN), (Slider(speed=0.0), TIMED_OUT)]
)
def test_mishaps_are_named(tmp_path, car, end):
    log = drive(car, nobody(), curve(), dt=DT, max_angle=0.6, half_width=2.0, max_time=4.0)
    assert log.end == end
    assert log.completion < 0.7
    log.save(tmp_path / "log.npz")
    again = Log.load(tmp_path / "log.npz")
    assert (again.end, again.completion, again.dt) == (log.end, log.completion, log.dt)
    np.testing.assert_array_equal(again.columns["cross_track"], log.columns["cross_track"])


def test_metrics_against_hand_computed_values():
    cross_track, heading, speed = (
        np.array([1.0, -2.0, 2.0, 99.0]),
        np.full(4, 0.1),
        np.array([3.0, 4.0, 0.0, 99.0]),
    )
    control = np.array([[0.0, 0.0], [0.1, 0.0], [0.1, 0.2], [9.0, 9.0]])
    mask = np.array([True, True, True, False])
    found = tracking_metrics(cross_track, heading, speed, control, mask, 0.05)
    assert found["cross_track_rms"] == pytest.approx(np.sqrt(3.0))
    assert found["cross_track_max"] == 2.0
    assert found["heading_rms"] == pytest.approx(0.1)
    assert found["speed_rms"] == pytest.approx(np.sqrt(25 / 3))
    assert found["steer_rate_rms"] == pytest.approx(np.sqrt(2.0))
    assert found["pedal_rate_rms"] == pytest.approx(np.sqrt(8.0))
    batched = jax.vmap(lambda *a: tracking_metrics(*a, 0.05))(
        *(jnp.stack([a, a]) for a in (cross_track, heading, speed, control, mask))
    )
    for name, value in found.items():
        np.testing.assert_allclose(batched[name], value, rtol=1e-6)


def test_the_default_layout_is_the_one_that_bundles_carry():
    assert EnvConfig().observation == ObservationSpec()
