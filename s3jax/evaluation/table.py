"""The table of closed-loop drives."""

import math

COLUMNS = (
    ("completion", "completion (%)", 100.0, 1),
    ("time", "time (s)", 1.0, 1),
    ("cross_track_rms", "cross-track RMS (m)", 1.0, 3),
    ("cross_track_max", "cross-track max (m)", 1.0, 2),
    ("heading_rms", "heading RMS (deg)", math.degrees(1.0), 2),
    ("speed_rms", "speed RMS (m/s)", 1.0, 2),
    ("steer_rate_rms", "steer rate RMS (1/s)", 1.0, 3),
    ("pedal_rate_rms", "pedal rate RMS (1/s)", 1.0, 2),
)
"""Metric, heading, factor and decimals of each column of numbers."""

HEAD = ("road", "driver", "end", *(heading for _, heading, _, _ in COLUMNS))


def rows(drives: list[dict]) -> list[list[str]]:
    """Returns a row of text, as under `HEAD`, for each drive.

    Args:
      drives: the `drives` of `drive_laps`.
    """
    return [
        [drive["condition"], drive["driver"], drive["end"]]
        + [f"{drive['metrics'][name] * factor:.{decimals}f}" for name, _, factor, decimals in COLUMNS]
        for drive in drives
    ]


def markdown(drives: list[dict]) -> str:
    """Returns the table of drives as Markdown."""
    lines = [HEAD, ["---"] * 3 + ["---:"] * len(COLUMNS), *rows(drives)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
