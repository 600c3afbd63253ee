"""Where the real records are, if they are here."""

from pathlib import Path

WOMD = Path(__file__).parents[3] / "shared" / "data" / "womd"
RECORD = WOMD / "motion_data_one_example.tfrecord"
