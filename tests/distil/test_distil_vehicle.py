import jax
import pytest

from s3jax.archive import FileError
from s3jax.distil import DistilConfig, bench
from s3jax.distil.stage import for_episodes
from s3jax.distil.vehicle import data_sheet
from s3jax.dynamics.store import make_dynamics

VAN = {
    "name": "van",
    "body": {"wheelbase": 3.0, "front_share": 0.6, "cg_height": 0.8},
    "driveline": {"driven": "front"},
}


def test_the_data_sheet_follows_the_statics():
    sheet = data_sheet(VAN)
    # Sixty percent of the weight in front: the front axle is at forty percent of the wheelbase.
    assert sheet.front_axle == pytest.approx(1.2) and sheet.rear_axle == pytest.approx(1.8)
    assert (sheet.height, sheet.front_drive) == (0.8, 1.0)


def test_every_model_gets_the_recorded_vehicle(episodes):
    config = DistilConfig.parse(
        {
            "models": [
                {"kind": "bicycle"},
                {"kind": "dytr"},
                {"kind": "ensemble", "member": {"kind": "transformer"}},
            ]
        }
    )
    fitted = for_episodes(config, [episode._replace(vehicle=VAN) for episode in episodes])
    assert fitted.models[1].base.vehicle == fitted.models[2].member.vehicle == data_sheet(VAN)
    assert for_episodes(config, episodes) == config


def test_other_or_unusable_vehicles_are_refused(episodes):
    config = DistilConfig()
    mixed = [episodes[0]._replace(vehicle=VAN), episodes[1]._replace(vehicle={**VAN, "name": "bus"})]
    with pytest.raises(FileError, match=r"different vehicles \(bus, van\)"):
        for_episodes(config, mixed)
    with pytest.raises(FileError, match="episode00: the header's vehicle has no usable 'driveline'"):
        for_episodes(config, [episodes[0]._replace(vehicle={"body": VAN["body"]})])


def test_speed_counts_steps_and_operations():
    model = make_dynamics({"kind": "ddm", "hidden": 8, "dense": 8})
    result = bench.speed(model, model.init(jax.random.key(0)), environments=16, steps=4, repeats=1)
    assert result["steps_per_second"] > 0
    # At least the multiplications and additions of the recurrent cell.
    assert result["flops"] > 2 * (14 * 24 + 8 * 24)
