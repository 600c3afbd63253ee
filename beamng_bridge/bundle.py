"""The policy bundle: a trained policy as one file that NumPy alone can run and check.

A bundle holds the network's weights, the observation statistics, the observation's layout, the meaning of
its outputs, and recorded observations with their actions, which `load_bundle` replays before anyone drives.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.archive import FileError, load_archive, save_archive
from s3jax.spatial.observation import ObservationSpec
from s3jax.spatial.state import CONTROL_DEFINITION, STATE_DEFINITION

KIND, VERSION = "policy", 2

TOLERANCE = 1e-5
"""Largest difference of a replayed action from the recorded one."""


class PolicySpec(NamedTuple):
    """What a policy's inputs and outputs mean.

    Attributes:
      observation: layout of the observation.
      control_rate: change per second of steer and pedal at full action.
      dt: control step (s).
      activation: of the hidden layers; "silu".
      clip: bound of the normalised observations.
    """

    observation: ObservationSpec
    control_rate: tuple[float, float]
    dt: float
    activation: str
    clip: float


class Policy:
    """A deterministic policy on NumPy. One with a GRU remembers what it saw since `reset`."""

    def __init__(self, spec: PolicySpec, weights: dict, mean, std, provenance: dict):
        """Takes weights as for `save_bundle`; mean and std [D] of the observation."""
        self.spec = spec
        self.provenance = provenance
        self._layers = [weights["actor"][f"dense_{i}"] for i in range(len(weights["actor"]))]
        self._gru = weights.get("gru")
        self._mean, self._std = np.asarray(mean), np.asarray(std)
        self.reset()

    def reset(self) -> None:
        """Forgets what it saw; call it before every drive."""
        self._memory = None if self._gru is None else np.zeros(len(self._gru["bias"]), np.float32)

    def __call__(self, observation) -> np.ndarray:
        """Returns the action [2] in [-1, 1], a share of `control_rate`, for an observation [D]."""
        x = (np.asarray(observation, np.float32) - self._mean) / self._std
        x = np.clip(x, -self.spec.clip, self.spec.clip)
        if self._gru is not None:
            self._memory = _gru(self._gru, self._memory, x)
            x = np.concatenate([x, self._memory])
        for layer in self._layers[:-1]:
            x = x @ layer["kernel"] + layer["bias"]
            x = x * _sigmoid(x)  # SiLU
        return np.tanh(x @ self._layers[-1]["kernel"] + self._layers[-1]["bias"])


def _gru(weights: dict, memory: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns the memory [H] after an input [D], as `s3jax.ppo.networks.GRU` does."""
    size = len(memory)
    gates, own = x @ weights["input"]["kernel"] + weights["input"]["bias"], memory @ weights["kernel"]
    reset, update = np.split(_sigmoid(gates[: 2 * size] + own[: 2 * size]), 2)
    candidate = np.tanh(gates[2 * size :] + reset * (own[2 * size :] + weights["bias"]))
    return (1 - update) * candidate + update * memory


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-np.clip(x, -80.0, 80.0)))


def save_bundle(
    path: str | Path, spec: PolicySpec, weights: dict, mean, std, probes, provenance: dict
) -> None:
    """Writes a bundle.

    Args:
      path: the file.
      spec: what inputs and outputs mean.
      weights: nested dictionaries of float32 arrays: `actor` holds the layers `dense_0`, `dense_1`, ..., each
        `kernel` [in, out] and `bias` [out]; `gru`, if any, the gates' `input` (`kernel` [D, 3 H], `bias`
        [3 H]), `kernel` [H, 3 H] and the candidate's `bias` [H], in the order reset, update, candidate.
      mean: [D] of the observations. std: [D].
      probes: observations [P, D] of one episode and the actions [P, 2] that the original policy took.
      provenance: JSON-able facts about vehicle, dynamics and training.
    """
    arrays = {"mean": mean, "std": std, "probe/observation": probes[0], "probe/action": probes[1]}
    arrays |= _flatten(weights)
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    header = {
        "observation": spec.observation.to_dict(),
        "observation_digest": spec.observation.digest(),
        "control_rate": list(spec.control_rate),
        "dt": spec.dt,
        "activation": spec.activation,
        "clip": spec.clip,
        "state_definition": STATE_DEFINITION,
        "control_definition": CONTROL_DEFINITION,
        "weights_digest": _digest(arrays),
        "provenance": provenance,
    }
    save_archive(path, KIND, VERSION, header, arrays)


def load_bundle(path: str | Path, dt: float | None = None) -> Policy:
    """Reads a bundle and replays its probes.

    Args:
      path: the file.
      dt: control step of the caller (s), if it has one.

    Returns:
      The policy.

    Raises:
      FileError: if the file is damaged, made for another observation, state, control or control step, or
        does not reproduce its recorded actions.
    """
    header, arrays = load_archive(path, KIND, VERSION)
    try:
        spec = PolicySpec(
            observation=ObservationSpec(**header["observation"]),
            control_rate=tuple(header["control_rate"]),
            dt=header["dt"],
            activation=header["activation"],
            clip=header["clip"],
        )
        policy = Policy(spec, _nest(arrays), arrays["mean"], arrays["std"], header["provenance"])
        probes, actions = arrays["probe/observation"], arrays["probe/action"]
        weights_digest, observation_digest = header["weights_digest"], header["observation_digest"]
        definitions = {name: header[name] for name in ("state_definition", "control_definition")}
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: incomplete policy bundle ({error})") from None
    if _digest(arrays) != weights_digest:
        raise FileError(f"{path}: weights do not match their digest; the file was changed after export")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise FileError(f"{path}: holds weights that are not finite")
    ours = {"state_definition": STATE_DEFINITION, "control_definition": CONTROL_DEFINITION}
    for name, value in ours.items():
        if definitions[name] != value:
            raise FileError(f"{path}: made for {name} {definitions[name]}, this s3jax has {value}")
    if observation_digest != spec.observation.digest():
        raise FileError(f"{path}: made for another observation; export it again with this version of s3jax")
    if spec.activation != "silu":
        raise FileError(f"{path}: activation {spec.activation!r} is not known")
    if dt is not None and abs(dt - spec.dt) > 1e-9:
        raise FileError(f"{path}: made for a control step of {spec.dt} s, but here it is {dt} s")
    try:
        replayed = np.stack([policy(probe) for probe in probes])
        difference = float(np.abs(replayed - actions).max())
    except (KeyError, TypeError, ValueError) as error:  # shapes that do not fit
        raise FileError(f"{path}: layers do not fit together ({error})") from None
    if not difference <= TOLERANCE:
        raise FileError(f"{path}: replayed actions differ from the recorded ones by {difference:.1e}")
    policy.reset()
    return policy


def _flatten(tree: dict, prefix: str = "") -> dict:
    """Returns nested dictionaries of arrays as one, with names such as `actor/dense_0/kernel`."""
    flat = {}
    for name, value in tree.items():
        flat |= _flatten(value, f"{prefix}{name}/") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _nest(arrays: dict) -> dict:
    """Undoes `_flatten`."""
    tree: dict = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = array
    return tree


def _digest(arrays: dict) -> str:
    """Returns a SHA-256 over names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], "<f4")
        digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
