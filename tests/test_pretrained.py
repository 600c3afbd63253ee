"""The model that comes along is a fitted DDM of the sedan."""

from s3jax.dynamics.store import PRETRAINED, check_compatible, load_dynamics


def test_the_pretrained_model_loads_and_names_its_vehicle():
    model, params, header = load_dynamics(PRETRAINED)
    check_compatible(header, 0.05, PRETRAINED)
    assert model.config.kind == "ddm"
    assert model.describe(params)
    assert round(model.config.vehicle.front_axle, 3) == 1.291
