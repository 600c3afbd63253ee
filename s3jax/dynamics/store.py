"""Making models from configurations, and keeping a model with its parameters in one file."""

import difflib
import importlib
import pkgutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import s3jax.dynamics
from s3jax.archive import FileError, load_archive, save_archive
from s3jax.config import ConfigError
from s3jax.dynamics.base import Dynamics, DynamicsConfig
from s3jax.spatial.state import CONTROL_DEFINITION, STATE_DEFINITION

VERSION = 1

PRETRAINED = Path(__file__).parent / "pretrained" / "ddm_sedan.npz"
"""A DDM of the embedded sedan: the one that `s3jax demo` distils with seed 0."""


def dynamics_config(values: dict, source: str = "dynamics") -> DynamicsConfig:
    """Builds a model's configuration from a dictionary whose `kind` names a module of `s3jax.dynamics`.

    Args:
      values: the configuration's fields.
      source: names the dictionary in errors.

    Raises:
      ConfigError: for an unknown kind or field.
    """
    kind = values.get("kind")
    found = _configs().get(kind)
    if found is None:
        near = difflib.get_close_matches(str(kind), _configs(), n=1, cutoff=0.0)
        raise ConfigError(f"{source}: unknown kind {kind!r}; did you mean {near[0]}?")
    return found.parse(values, source=source)


def make_dynamics(config: DynamicsConfig | dict) -> Dynamics:
    """Returns the model of a configuration, or of a dictionary with a `kind`."""
    if isinstance(config, dict):
        config = dynamics_config(config)
    return config.make()


def save_dynamics(path, model: Dynamics, params, provenance: dict | None = None) -> None:
    """Writes a model and its parameters to one `.npz`.

    Args:
      path: the file.
      model: the model.
      params: its parameters.
      provenance: JSON-able facts about how they came about.
    """
    header = {
        "config": model.config.dump(),
        "dt": model.dt,
        "state_definition": STATE_DEFINITION,
        "control_definition": CONTROL_DEFINITION,
        "provenance": provenance or {},
    }
    save_archive(path, "dynamics", VERSION, header, flatten(params))


def load_dynamics(path):
    """Reads what `save_dynamics` wrote.

    Returns:
      The model, its parameters and the file's header.

    Raises:
      FileError: if the file cannot be used, or its arrays are not those of its model.
    """
    header, arrays = load_archive(path, "dynamics", VERSION)
    try:
        model = make_dynamics(dynamics_config(header["config"], source=f"{path}: config"))
    except (KeyError, ConfigError) as error:
        raise FileError(f"{path}: {error}") from None
    expected = flatten(jax.eval_shape(model.init, jax.random.key(0)))
    for name in sorted(expected.keys() | arrays.keys()):
        shapes = [None if name not in side else side[name].shape for side in (expected, arrays)]
        if shapes[0] != shapes[1]:
            raise FileError(f"{path}: parameter {name} has shape {shapes[1]}, its model needs {shapes[0]}")
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise FileError(f"{path}: parameter {name} is not finite")
    return model, unflatten(arrays), header


def check_compatible(header: dict, dt: float, path="dynamics") -> None:
    """Refuses a model made for another control step, state or control.

    Args:
      header: of a model file (or a recording or policy with the same three facts).
      dt: control step of the user (s).
      path: names the file in the error.

    Raises:
      FileError: naming both sides.
    """
    ours = {"dt": dt, "state_definition": STATE_DEFINITION, "control_definition": CONTROL_DEFINITION}
    for name, value in ours.items():
        theirs = header.get(name)
        same = abs(theirs - value) < 1e-9 if isinstance(theirs, float) and name == "dt" else theirs == value
        if not same:
            raise FileError(f"{path}: was made for {name} {theirs}, but here {name} is {value}")


def flatten(params) -> dict:
    """Returns the leaves of a nested dictionary by path, such as `gru/input/bias`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        "/".join(key.key for key in path): leaf
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else np.asarray(leaf)
        for path, leaf in leaves
    }


def unflatten(arrays: dict) -> dict:
    """Returns the nested dictionary that `flatten` took apart, as JAX arrays."""
    params: dict = {}
    for name, value in arrays.items():
        *parents, last = name.split("/")
        place = params
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = jnp.asarray(value)
    return params


def _configs() -> dict[str, type[DynamicsConfig]]:
    """Returns the configuration class of each model, by kind."""
    for module in pkgutil.iter_modules(s3jax.dynamics.__path__):
        importlib.import_module(f"s3jax.dynamics.{module.name}")
    return {cls.model_fields["kind"].default: cls for cls in DynamicsConfig.__subclasses__()}
