"""The table of closed-loop drives."""

import math
import statistics

COLUMNS = (
    ("completion", "completion (%)", 100.0, 1),
    ("time", "time (s)", 1.0, 1),
    ("cross_track_rms", "cross-track RMS (m)", 1.0, 3),
    ("cross_track_max", "cross-track max (m)", 1.0, 2),
    ("heading_rms", "heading RMS (deg)", math.degrees(1.0), 2),
    ("speed_rms", "speed RMS (m/s)", 1.0, 2),
    ("steer_rate_rms", "steer rate RMS (1/s)", 1.0, 3),
    ("pedal_rate_rms", "pedal rate RMS (1/s)", 1.0, 2),
    ("reached_steer_rate_rms", "steer rate reached (1/s)", 1.0, 3),
    ("reached_pedal_rate_rms", "pedal rate reached (1/s)", 1.0, 2),
)
"""Metric, heading, factor and decimals of each column of numbers."""

HEAD = ("road", "driver", "end", *(heading for _, heading, _, _ in COLUMNS))


def summary(drives: list[dict]) -> list[dict]:
    """Returns one entry per condition and driver, of all their laps.

    Args:
      drives: the `drives` of `drive_laps`.

    Returns:
      Entries like those given. Of several laps, `metrics` are means and `spread` holds the standard deviation
      of each; `end` says how many finished.
    """
    groups = {}
    for drive in drives:
        groups.setdefault((drive["condition"], drive["driver"]), []).append(drive)
    return [laps[0] if len(laps) == 1 else _together(laps) for laps in groups.values()]


def _together(laps: list[dict]) -> dict:
    values = {name: [lap["metrics"][name] for lap in laps] for name in laps[0]["metrics"]}
    finished = sum(lap["end"] == "finished" for lap in laps)
    return laps[0] | {
        "end": f"{finished} of {len(laps)} finished",
        "metrics": {name: statistics.fmean(column) for name, column in values.items()},
        "spread": {name: statistics.stdev(column) for name, column in values.items()},
    }


def rows(drives: list[dict]) -> list[list[str]]:
    """Returns a row of text, as under `HEAD`, for each drive; with ± its spread if it has one.

    Args:
      drives: the `drives` of `drive_laps`, or their `summary`.
    """

    def cell(drive, name, factor, decimals):
        text = f"{drive['metrics'][name] * factor:.{decimals}f}"
        if "spread" in drive:
            text += f" ± {drive['spread'][name] * factor:.{decimals}f}"
        return text

    return [
        [drive["condition"], drive["driver"], drive["end"]]
        + [cell(drive, name, factor, decimals) for name, _, factor, decimals in COLUMNS]
        for drive in drives
    ]


def markdown(drives: list[dict]) -> str:
    """Returns the table of drives as Markdown."""
    lines = [HEAD, ["---"] * 3 + ["---:"] * len(COLUMNS), *rows(drives)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
