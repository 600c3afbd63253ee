"""Configuration: immutable, typed, read from YAML, overridden from the command line.

Each stage defines its own `Config` beside its code. A key that the stage does not know, a value of the
wrong type and a value out of range are refused with the file, the key and, for keys, the nearest name.
"""

import difflib
from pathlib import Path
from typing import Self

import pydantic
import yaml

from s3jax.archive import atomic_path
from s3jax.errors import UserError


class ConfigError(UserError):
    """A configuration cannot be used; the message says which key and why."""


class Config(pydantic.BaseModel):
    """Base of every configuration: frozen, hashable, finite numbers only, no unknown keys."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def load(cls, path: str | Path | None = None, overrides: tuple[str, ...] | list[str] = ()) -> Self:
        """Reads a YAML file and applies overrides.

        Args:
          path: the YAML file, or None for the defaults.
          overrides: strings such as `"ppo.num_envs=2048"`; values are YAML.

        Raises:
          ConfigError: for a missing or malformed file, an unknown key or a value that does not fit.
        """
        values = {} if path is None else _read_yaml(path)
        for override in overrides:
            key, equals, text = override.partition("=")
            if not equals or not key:
                raise ConfigError(f"override {override!r}: expected key=value, such as ppo.num_envs=2048")
            try:
                _assign(values, key.strip().split("."), yaml.safe_load(text))
            except yaml.YAMLError as error:
                raise ConfigError(f"override {override!r}: not YAML ({_one_line(error)})") from None
        return cls.parse(values, source=str(path) if path else "configuration")

    @classmethod
    def parse(cls, values: dict, source: str = "configuration") -> Self:
        """Builds the configuration from nested dictionaries; `source` names them in errors."""
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            problems = "; ".join(_explain(cls, problem) for problem in error.errors())
            raise ConfigError(f"{source}: {problems}") from None

    def save(self, path: str | Path) -> None:
        """Writes the resolved configuration as YAML."""
        with atomic_path(path) as temporary:
            temporary.write_text(yaml.safe_dump(self.dump(), sort_keys=False), encoding="utf-8")

    def dump(self) -> dict:
        """Returns the configuration as nested dictionaries of JSON types."""
        return self.model_dump(mode="json")


def _read_yaml(path) -> dict:
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a readable YAML file ({_one_line(error)})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of keys to values at the top")
    return values


def _one_line(error) -> str:
    return " ".join(str(error).split())


def _assign(values: dict, keys: list[str], value) -> None:
    for key in keys[:-1]:
        child = values.get(key)
        if not isinstance(child, dict):
            child = values[key] = {"kind": child} if isinstance(child, str) else {}
        values = child
    last = values.get(keys[-1])
    if isinstance(last, dict) and isinstance(value, str):
        last["kind"] = value  # the kind alone leaves the section's other values as they are
    else:
        values[keys[-1]] = value


def _explain(cls, problem) -> str:
    """Turns one pydantic error into a clause naming the key and, for an unknown key, the nearest one."""
    location = [part for part in problem["loc"] if isinstance(part, str | int)]
    key = ".".join(map(str, location))
    if problem["type"] == "value_error":  # raised by a check of ours, across keys
        return f"{key}: {problem['ctx']['error']}" if key else str(problem["ctx"]["error"])
    if problem["type"] != "extra_forbidden":
        return f"{key}: {problem['msg']} (got {problem['input']!r})"
    known = _fields(cls, location[:-1])
    prefix = "".join(f"{part}." for part in location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.0)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    return f"unknown key {key}{hint}"


def _fields(cls, location) -> list[str]:
    """Returns the field names of the model at a location of an error."""
    for part in location:
        if isinstance(part, int) or cls is None:
            continue
        field = cls.model_fields.get(part) if hasattr(cls, "model_fields") else None
        cls = _model_in(field.annotation, part) if field else None
    return list(cls.model_fields) if cls is not None else []


def _model_in(annotation, tag):
    """Finds the model class inside an annotation such as `X`, `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument, tag)
        if found is not None:
            return found
    return None
