"""The policy bundle: the same actions as the Flax policy, and refusal of anything that is not sound."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beamng_bridge.bundle import PolicySpec, load_bundle, save_bundle
from s3jax.archive import FileError, load_archive, save_archive
from s3jax.ppo.networks import GRU, MLP
from s3jax.ppo.normaliser import CLIP
from s3jax.ppo.policy import initial_memory, mean_action
from s3jax.spatial.observation import ObservationSpec

SPEC = PolicySpec(ObservationSpec(), (3.0, 4.0), 0.05, "silu", CLIP)


@pytest.fixture(scope="module", params=[0, 32], ids=["mlp", "gru"])
def flax_policy(request):
    """A random policy of the usual size, as a checkpoint holds it."""
    size, memory = SPEC.observation.size, request.param
    params = {"actor": MLP((64, 64), 2).init(jax.random.key(0), jnp.zeros(size + memory))["params"]}
    if memory:
        inputs = jnp.zeros((1, size)), jnp.zeros(memory), jnp.zeros(1, bool)
        params["gru"] = GRU(memory).init(jax.random.key(1), *inputs)["params"]
    rng = np.random.default_rng(0)
    return {
        **jax.tree.map(np.asarray, params),
        "mean": rng.normal(size=size).astype(np.float32),
        "variance": rng.uniform(0.01, 9.0, size).astype(np.float32),
    }


def act_in_order(policy, observations):
    memory, actions = initial_memory(policy), []
    for observation in observations.astype(np.float32):
        action, memory = mean_action(policy, observation, memory)
        actions.append(action)
    return np.stack(actions)


@pytest.fixture
def bundle(tmp_path, flax_policy):
    path = tmp_path / "policy.npz"
    std = np.sqrt(flax_policy["variance"])
    observations = np.random.default_rng(1).normal(size=(8, len(std))).astype(np.float32)
    weights = {name: flax_policy[name] for name in ("actor", "gru") if name in flax_policy}
    probes = observations, act_in_order(flax_policy, observations)
    save_bundle(path, SPEC, weights, flax_policy["mean"], std, probes, {"seed": 0})
    return path


def test_numpy_and_flax_give_the_same_actions(bundle, flax_policy):
    policy = load_bundle(bundle, 0.05)
    observations = np.random.default_rng(2).normal(size=(200, SPEC.observation.size)) * 5
    expected = act_in_order(flax_policy, observations)
    for _ in range(2):  # the second drive starts afresh
        policy.reset()
        actual = np.stack([policy(observation) for observation in observations])
        assert np.abs(actual - expected).max() < 1e-5
    assert policy.spec == SPEC
    assert policy.provenance == {"seed": 0}


def tamper(path, header=None, arrays=None):
    """Writes the bundle again with changed header fields or arrays."""
    old_header, old_arrays = load_archive(path, "policy", 2)
    new = {k: v for k, v in (old_header | (header or {})).items() if k not in ("kind", "version")}
    save_archive(
        path, "policy", 2, {k: v for k, v in new.items() if v is not None}, old_arrays | (arrays or {})
    )


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"state_definition": "other_v9"}, "made for state_definition other_v9"),
        ({"observation": {"preview": 3, "preview_stride": 4, "history": 4}}, "another observation"),
        ({"observation": {"preview": 0, "preview_stride": 4, "history": 4}}, "incomplete policy bundle"),
        ({"observation": {"peview": 3}}, "incomplete policy bundle"),
        ({"activation": "relu"}, "activation 'relu' is not known"),
        ({"weights_digest": None}, "incomplete policy bundle"),
        ({"clip": 0.5}, "replayed actions differ"),
    ],
)
def test_changed_headers_are_refused(bundle, header, message):
    tamper(bundle, header)
    with pytest.raises(FileError, match=message) as error:
        load_bundle(bundle)
    assert "\n" not in str(error.value)


def test_changed_weights_are_refused(bundle):
    arrays = load_archive(bundle, "policy", 2)[1]
    tamper(bundle, arrays={"actor/dense_0/bias": arrays["actor/dense_0/bias"] + 1e-3})
    with pytest.raises(FileError, match="digest"):
        load_bundle(bundle)


def test_another_control_step_is_refused_naming_both(bundle):
    with pytest.raises(FileError, match=r"control step of 0\.05 s, but here it is 0\.1 s"):
        load_bundle(bundle, 0.1)


def test_other_files_are_refused(tmp_path):
    save_archive(tmp_path / "x.npz", "dynamics", 1, {}, {})
    with pytest.raises(FileError, match="is a dynamics file, expected a policy file"):
        load_bundle(tmp_path / "x.npz")


def test_importing_loads_neither_jax_nor_tensorflow_nor_beamngpy():
    code = (
        "import sys, json, s3jax, beamng_bridge, beamng_bridge.bundle, s3jax.cli, s3jax.evaluation.drive, "
        "s3jax.source.collect, s3jax.scenarios.load\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"jax", "jaxlib", "flax", "tensorflow", "beamngpy"} & set(json.loads(output))
