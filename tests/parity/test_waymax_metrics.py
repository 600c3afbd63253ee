"""The four metrics of the ego car, ours against Waymax's, in scenes that are driven badly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from real_data import RECORD

from s3jax.scenarios.checks import kinematic_infeasibility, log_divergence, off_road, overlap
from s3jax.scenarios.compact import MAP_RADIUS
from s3jax.scenarios.polyline import distance_to_path

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = ("log_divergence", "overlap", "offroad", "kinematic_infeasibility")
DRIVERS = {  # acceleration (m/s^2) and curvature (1/m) at step k of 80
    "straight on": lambda k: (4.0, 0.0 * k),
    "off to the left": lambda k: (1.0, 0.03 + 0.0 * k),
    "off to the right": lambda k: (0.5, -0.05 + 0.0 * k),
    "wildly": lambda k: (14.0 * jnp.sin(0.9 * k), 0.5 * jnp.sin(0.37 * k)),
}


@pytest.fixture(scope="module")
def scenes(waymax, worlds):
    from s3jax.waymax.config import WaymaxConfig
    from s3jax.waymax.scenes import load_scenes

    files = [worlds[1], *([RECORD] if RECORD.is_file() else [])]
    return load_scenes(files, 0.05, WaymaxConfig(objects=64))


@pytest.fixture(scope="module")
def drive(waymax):
    """Returns a function that drives a scene and gives Waymax's final state and metrics, each [80]."""
    from s3jax.waymax.dynamics import BicycleModel

    config = waymax.config.EnvironmentConfig(
        max_num_objects=64, metrics=waymax.config.MetricsConfig(metrics_to_run=NAMES)
    )
    environment = waymax.env.PlanningAgentEnvironment(BicycleModel(max_accel=20, max_curvature=1), config)

    @jax.jit
    def run(state, controls):
        def step(state, control):
            action = waymax.datatypes.Action(data=control, valid=jnp.ones(1, bool))
            state = environment.step(state, action)
            return state, {name: result.value for name, result in environment.metrics(state).items()}

        return jax.lax.scan(step, environment.reset(state), controls)

    return run


def measure(scene, state):
    """The same of a driven state, by our own functions, in NumPy; name -> [80]."""
    sim, log = state.sim_trajectory, state.log_trajectory
    box = np.stack([np.asarray(sim[name], float) for name in ("x", "y", "yaw", "length", "width")], axis=-1)
    driven = slice(11, 91)
    touched = overlap(box[:1, driven], box[1:, driven]) & np.asarray(sim.valid)[1:, driven]
    x, y, yaw, vel_x, vel_y = (
        np.asarray(sim[name], float)[0] for name in ("x", "y", "yaw", "vel_x", "vel_y")
    )
    return {
        "log_divergence": log_divergence(x, y, np.asarray(log.x)[0], np.asarray(log.y)[0])[driven],
        "overlap": touched.any(axis=0),
        "offroad": off_road(box[0, driven], scene.scenario.edges.astype(float), reach=np.inf),
        "kinematic_infeasibility": kinematic_infeasibility(yaw, vel_x, vel_y, 0.1)[10:],
    }


def near_path(scene, state):
    """Where [80] the driven car is within 30 m of the log's path: no more of the map is in a scenario."""
    place = np.stack([np.asarray(state.sim_trajectory[name])[0, 11:] for name in "xy"], axis=1)
    reference = scene.scenario.reference
    return np.isfinite(distance_to_path(place, reference.samples[: reference.length, :2], MAP_RADIUS))


def test_driven_badly_all_metrics_agree(scenes, drive):
    counts = {name: np.zeros(3, int) for name in NAMES[1:]}
    furthest, error = 0.0, 0.0
    for scene in scenes:
        for control in DRIVERS.values():
            controls = jnp.stack(jnp.broadcast_arrays(*control(jnp.arange(80.0))), axis=-1)
            state, theirs = drive(jax.tree.map(jnp.asarray, scene.state), controls)
            ours = measure(scene, state)
            valid = np.asarray(state.log_trajectory.valid)[0, 11:]
            gap = np.abs(ours["log_divergence"] - np.asarray(theirs["log_divergence"]))[valid]
            furthest = max(furthest, float(ours["log_divergence"][valid].max()))
            error = max(error, float((gap / (1 + ours["log_divergence"][valid])).max()))
            for name, count in counts.items():
                counts_here = near_path(scene, state) if name == "offroad" else slice(None)
                expected, found = (np.asarray(theirs[name]) > 0)[counts_here], ours[name][counts_here]
                count += len(expected), expected.sum(), (expected != found).sum()
    print(f"log divergence: up to {furthest:.0f} m, relative difference {error:.1e}")
    for name, (steps, true, differ) in counts.items():
        print(f"{name}: {steps} steps of {len(scenes)} scenes, {true} true, {differ} differ")
    assert furthest > 50 and error < 1e-5
    for steps, true, differ in counts.values():
        assert true > 100 and differ <= 0.005 * steps


def test_our_metrics_are_the_same_in_jax(scenes, drive):
    scene = scenes[0]
    controls = jnp.stack(jnp.broadcast_arrays(*DRIVERS["wildly"](jnp.arange(80.0))), axis=-1)
    state, _ = drive(jax.tree.map(jnp.asarray, scene.state), controls)
    sim = state.sim_trajectory
    box = jnp.stack([sim[name] for name in ("x", "y", "yaw", "length", "width")], axis=-1)
    edges = jnp.asarray(scene.scenario.edges)
    motion = sim.yaw[0], sim.vel_x[0], sim.vel_y[0]
    for ours, numpy in (
        (jax.jit(overlap)(box[:1], box[1:]), overlap(np.asarray(box[:1]), np.asarray(box[1:]))),
        (jax.jit(off_road)(box[0], edges), off_road(np.asarray(box[0]), np.asarray(edges))),
        (
            jax.jit(kinematic_infeasibility, static_argnums=3)(*motion, 0.1),
            kinematic_infeasibility(*map(np.asarray, motion), 0.1),
        ),
    ):
        assert isinstance(ours, jax.Array) and isinstance(numpy, np.ndarray)
        assert (np.asarray(ours) != numpy).mean() < 0.01
