"""The data sheet of the recorded vehicle, handed to every model that uses one."""

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.dynamics.base import DynamicsConfig
from s3jax.dynamics.single_track import VehicleConfig


def data_sheet(vehicle: dict, source="recording") -> VehicleConfig:
    """Returns what the single track needs from the `vehicle` entry of a recording's header.

    Args:
      vehicle: with `body` (wheelbase, front_share, cg_height) and `driveline` (driven: front or rear).
      source: names the recording in errors.

    Raises:
      FileError: if an entry is missing or out of range.
    """
    try:
        body, driven = vehicle["body"], vehicle["driveline"]["driven"]
        return VehicleConfig.parse(
            {
                "front_axle": body["wheelbase"] * (1.0 - body["front_share"]),
                "rear_axle": body["wheelbase"] * body["front_share"],
                "height": body["cg_height"],
                "front_drive": {"front": 1.0, "rear": 0.0}[driven],
            }
        )
    except KeyError as error:
        raise FileError(f"{source}: the header's vehicle has no usable {error}") from None
    except ConfigError as error:
        raise FileError(f"{source}: the header's vehicle: {error}") from None


def with_vehicle(config: DynamicsConfig, vehicle: VehicleConfig) -> DynamicsConfig:
    """Returns a model's configuration, and those inside it, with the data sheet of a vehicle."""
    update = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, VehicleConfig):
            update[name] = vehicle
        elif isinstance(value, DynamicsConfig):
            update[name] = with_vehicle(value, vehicle)
    return config.model_copy(update=update)
