"""The real Waymax, or a skip; worlds and records to compare with it on."""

import pytest
from real_data import RECORD

from s3jax.scenarios.example import parse_example
from s3jax.scenarios.read import parse_scene
from s3jax.scenarios.tfrecord import read_records
from s3jax.scenarios.waymax import WaymaxError, load_waymax, simulator_state, to_waymax
from s3jax.scenarios.womd_writer import write_worlds
from s3jax.scenarios.world_kinds import KINDS, WorldConfig
from s3jax.scenarios.worlds import generate_world


@pytest.fixture(scope="session")
def waymax():
    try:
        load_waymax()
    except WaymaxError as error:
        pytest.skip(str(error))
    import waymax.config
    import waymax.dataloader
    import waymax.dynamics
    import waymax.env
    import waymax.metrics

    return waymax


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """One gentle world of each kind, and the file that holds them."""
    made = [generate_world(WorldConfig(), 3, kind) for kind in KINDS]
    path = tmp_path_factory.mktemp("worlds") / "worlds.tfrecord"
    write_worlds(path, made)
    return made, path


@pytest.fixture(scope="session")
def states(waymax, worlds):
    """Waymax's state and the scene of each world, and, where it is there, of the real record."""
    made, _ = worlds
    found = [(to_waymax(world.scene, world.route), world.scene) for world in made]
    if RECORD.is_file():
        (record,) = read_records(RECORD)
        found.append((simulator_state(parse_example(record.data)), parse_scene(record)))
    return found
