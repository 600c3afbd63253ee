"""Every file in `configs/` fits its stage, and the default ones are the defaults."""

from pathlib import Path

import pytest

from s3jax.distil import DistilConfig
from s3jax.distil.import_csv import CsvMapping
from s3jax.evaluation.drive import DriveConfig
from s3jax.ppo.train import TrainConfig
from s3jax.scenarios.worlds import WorldConfig
from s3jax.source.collect import CollectConfig

CONFIGS = Path(__file__).parents[1] / "configs"
STAGES = {
    "collect": CollectConfig,
    "distil": DistilConfig,
    "drive": DriveConfig,
    "import": CsvMapping,
    "scenarios": WorldConfig,
    "train": TrainConfig,
}


@pytest.mark.parametrize(
    "path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_files_fit_their_stage(path):
    config = STAGES[path.parent.name].load(path)
    if path.stem == "default":
        assert config == STAGES[path.parent.name]()
