import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.curves import read_rows
from s3jax.distil import dataset, train
from s3jax.distil.config import DistilConfig
from s3jax.distil.train import DivergedError
from s3jax.progress import silent


def recipe(**fields):
    values = {
        "steps": 60,
        "batch": 32,
        "warmup": 10,
        "horizons": [10],
        "evaluate_every": 30,
        "validation": 0.2,
        "test": 0.2,
    }
    return DistilConfig.parse({**values, **fields})


def run(config, episodes, directory, progress=silent):
    model = config.models[0].make()
    split = dataset.split_episodes(episodes, config.validation, config.test, config.seed)
    params = model.init(jax.random.key(config.seed))
    return model, params, train.fit(model, params, config, split, directory, directory / "curves", progress)


def test_fitting_recovers_the_recorded_car(tmp_path, episodes):
    config = recipe(models=[{"kind": "single_track"}], steps=240, evaluate_every=80)
    seen = []
    model, params, result = run(config, episodes, tmp_path, lambda *report: seen.append(report[0]))
    before, fitted = model.describe(params), model.describe(result.params)
    true_brake = 4 + 21 / (1 + np.exp(-(np.log((11 - 4) / (25 - 11)) + 0.6)))
    assert abs(fitted["brake"] - true_brake) < 0.5 * abs(before["brake"] - true_brake)
    assert [row["update"] for row in result.metrics] == [80, 160, 240] == seen
    errors = [row["validation_error"] for row in result.metrics]
    held = train.validation_windows(
        dataset.split_episodes(episodes, config.validation, config.test, config.seed).validation, config
    )
    assert errors[-1] < 0.3 * float(train.validation_error(model, config.warmup, params, held))
    assert float(result.state.best_error) == min(errors)


def test_a_network_learns(tmp_path, episodes):
    small = recipe(models=[{"kind": "ddm", "hidden": 8, "dense": 8}], horizons=[5])
    _, params, result = run(small, episodes, tmp_path)
    losses = [row["loss"] for row in result.metrics]
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_array_equal(result.params["scale"]["std"], params["scale"]["std"])
    assert not np.array_equal(result.params["gru"]["hidden"]["weights"], params["gru"]["hidden"]["weights"])


def test_interrupted_and_resumed_equals_uninterrupted_to_the_bit(tmp_path, episodes):
    config = recipe(models=[{"kind": "bicycle"}], steps=90)
    _, _, whole = run(config, episodes, tmp_path / "whole")

    def interrupt(done, *_):
        if done == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, episodes, tmp_path / "parts", interrupt)
    done = []
    _, _, parts = run(config, episodes, tmp_path / "parts", lambda *report: done.append(report[0]))
    assert done == [90]
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(parts.state), strict=True):
        np.testing.assert_array_equal(a, b)
    errors = [[row["validation_error"] for row in result.metrics] for result in (whole, parts)]
    assert errors[0] == errors[1]
    assert [row["update"] for row in read_rows(tmp_path / "parts" / "curves.csv")] == [30, 60, 90]


def test_divergence_says_where_and_keeps_the_last_good_state(tmp_path, episodes):
    config = recipe(models=[{"kind": "bicycle"}])
    episodes[0].states.vx[100] = np.nan
    with pytest.raises(DivergedError, match=r"bicycle: the loss of update \d+ .* is not finite"):
        run(config, episodes, tmp_path)


def test_training_stops_when_validation_no_longer_improves(tmp_path, episodes):
    config = recipe(models=[{"kind": "bicycle"}], steps=3000, evaluate_every=30, patience=2)
    _, _, result = run(config, episodes, tmp_path)
    errors = [row["validation_error"] for row in result.metrics]
    assert len(errors) < 100
    assert min(errors) == errors[-3] == float(result.state.best_error)


def test_the_optimiser_leaves_constants_of_scale_and_base_alone():
    optimiser = train.make_optimiser(recipe())
    params = {
        "base": {"weights": jnp.ones((2, 2))},
        "scale": {"mean": jnp.ones(4)},
        "weights": jnp.ones((2, 2)),
    }
    change, _ = optimiser.update(params, optimiser.init(params), params)
    assert float(jnp.abs(change["base"]["weights"]).max()) == 0
    assert float(jnp.abs(change["scale"]["mean"]).max()) == 0
    assert float(jnp.abs(change["weights"]).max()) > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"models": [{"kind": "ddm", "hiden": 3}]},
            "models: model 0: unknown key hiden; did you mean hidden",
        ),
        ({"models": [{"kind": "dmd"}]}, "unknown kind 'dmd'; did you mean ddm"),
        ({"models": {"kind": "ddm"}}, "expected a list of models"),
        ({"models": [{"kind": "ddm"}, {"kind": "ddm", "hidden": 3}]}, "two have the same name"),
        ({"models": [{"kind": "ddm"}, {"kind": "bicycle", "dt": 0.1}]}, "differ in dt"),
        ({"horizons": [0]}, "at least 1 step"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        DistilConfig.parse(values)


def test_the_shipped_configurations_load(request):
    paths = sorted((request.config.rootpath / "configs" / "distil").glob("*.yaml"))
    assert paths
    for path in paths:
        assert DistilConfig.parse(DistilConfig.load(path).dump()) == DistilConfig.load(path)
