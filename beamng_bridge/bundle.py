"""The policy bundle: a trained policy as one file that NumPy alone can run and check.

A bundle holds the network's weights, the observation statistics, the observation's layout, the meaning of
its outputs, and recorded observation -> action pairs, which `load_bundle` replays before anyone drives.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.archive import FileError, load_archive, save_archive
from s3jax.spatial.observation import ObservationSpec
from s3jax.spatial.state import CONTROL_DEFINITION, STATE_DEFINITION

KIND, VERSION = "policy", 1

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
    """A deterministic policy on NumPy."""

    def __init__(self, spec: PolicySpec, layers, mean, std, provenance: dict):
        """Takes layers as pairs of kernel [in, out] and bias [out]; mean and std [D] of the observation."""
        self.spec = spec
        self.provenance = provenance
        self._layers = [(np.asarray(kernel), np.asarray(bias)) for kernel, bias in layers]
        self._mean, self._std = np.asarray(mean), np.asarray(std)

    def __call__(self, observation) -> np.ndarray:
        """Returns the action [2] in [-1, 1], a share of `control_rate`, for an observation [D]."""
        x = (np.asarray(observation, np.float32) - self._mean) / self._std
        x = np.clip(x, -self.spec.clip, self.spec.clip)
        for kernel, bias in self._layers[:-1]:
            x = x @ kernel + bias
            x = x / (1.0 + np.exp(-np.clip(x, -80.0, 80.0)))  # SiLU
        kernel, bias = self._layers[-1]
        return np.tanh(x @ kernel + bias)


def save_bundle(path: str | Path, spec: PolicySpec, layers, mean, std, probes, provenance: dict) -> None:
    """Writes a bundle.

    Args:
      path: the file.
      spec: what inputs and outputs mean.
      layers: pairs of kernel [in, out] and bias [out], float32.
      mean: [D] of the observations. std: [D].
      probes: observations [P, D] and the actions [P, 2] that the original policy gave for them.
      provenance: JSON-able facts about vehicle, dynamics and training.
    """
    arrays = {"mean": mean, "std": std, "probe/observation": probes[0], "probe/action": probes[1]}
    for i, (kernel, bias) in enumerate(layers):
        arrays |= {f"dense_{i}/kernel": kernel, f"dense_{i}/bias": bias}
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    header = {
        "observation": spec.observation.to_dict(),
        "observation_digest": spec.observation.digest(),
        "control_rate": list(spec.control_rate),
        "dt": spec.dt,
        "activation": spec.activation,
        "clip": spec.clip,
        "layers": len(layers),
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
        layers = [(arrays[f"dense_{i}/kernel"], arrays[f"dense_{i}/bias"]) for i in range(header["layers"])]
        policy = Policy(spec, layers, arrays["mean"], arrays["std"], header["provenance"])
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
    except ValueError as error:  # shapes that do not fit
        raise FileError(f"{path}: layers do not fit together ({error})") from None
    if not difference <= TOLERANCE:
        raise FileError(f"{path}: replayed actions differ from the recorded ones by {difference:.1e}")
    return policy


def _digest(arrays: dict) -> str:
    """Returns a SHA-256 over names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], "<f4")
        digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
