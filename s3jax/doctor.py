"""What is installed and what JAX sees."""

import importlib.metadata
import platform

PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "distrax", "numpy", "mujoco-core", "numba")
OPTIONAL = {"beamngpy": "BeamNG.tech bridge", "waymo-waymax": "Waymax environments", "hypothesis": "tests"}


def report() -> str:
    """Returns versions, devices and remarks as text."""
    lines = [f"python {platform.python_version()} on {platform.platform()}"]
    lines += [f"{name} {_version(name) or 'MISSING'}" for name in PACKAGES]
    lines += [f"{name} {_version(name) or 'not installed'} ({use})" for name, use in OPTIONAL.items()]
    if _version("waymax"):
        lines.append("`waymax` from PyPI is not Waymo's Waymax: pip uninstall waymax")
    import jax

    lines += [f"device {device.id}: {device.device_kind} ({device.platform})" for device in jax.devices()]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
