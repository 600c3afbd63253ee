"""Tracks from CSV files of x, y, width to the right and to the left (m), as race-line tools exchange."""

from pathlib import Path

import numpy as np

from s3jax.tracks.track import Track, TrackError

_MAX_SPACING = 50.0  # m
_MAX_TURN = 0.7  # rad between neighbouring chords
_MAX_RADIUS_SHARE = 0.95  # of the radius that a half width may reach


def read_track(path, closed: bool | None = None, spacing: float = 1.0, smoothing: float = 2.0) -> Track:
    """Reads a centre line and fits a smoothing spline to it.

    Args:
      path: rows x, y, width right, width left; lines that begin with # are skipped.
      closed: whether it is a loop; None decides by the gap between its ends. It need not repeat its start.
      spacing: wanted between samples (m).
      smoothing: waves shorter than about six times this are smoothed away (m).

    Raises:
      TrackError: for a file that cannot be used: unreadable, not four finite columns, widths not positive,
        too few or too coarse points, ends too far apart, a line that crosses itself, or a curve tighter than
        the road is wide. The message names the file and the row.
    """
    points, widths = _read(path)
    return track_from_points(Path(path).stem, points, widths, closed, spacing, smoothing, source=path)


def track_from_points(name: str, points, widths, closed, spacing: float, smoothing: float, source) -> Track:
    """Fits a smoothing spline to a centre line.

    Args:
      name: of the track.
      points: [K, 2] (m). widths: [K, 2] to the right and to the left (m).
      closed, spacing, smoothing: as for `read_track`.
      source: where the points are from, for errors.

    Raises:
      TrackError: for points that make no track.
    """
    if closed is None:
        gap, steps = _distance(points[0], points[-1]), np.hypot(*np.diff(points, axis=0).T)
        closed = bool(gap <= max(3 * steps.max(), 0.02 * steps.sum()))
    if closed and _distance(points[0], points[-1]) < 1e-6:
        points, widths = points[:-1], widths[:-1]
    _check(source, points, closed)
    x, y, yaw, curvature, share, step = _spline(points, closed, spacing, smoothing)
    right, left = (np.interp(share, np.arange(len(column)), column) for column in _wrapped(widths, closed).T)
    tight = np.abs(curvature) * np.where(curvature > 0, left, right)
    if tight.max() > _MAX_RADIUS_SHARE:
        k = int(tight.argmax())
        raise TrackError(
            f"{source}: near x {x[k]:.1f} m, y {y[k]:.1f} m the road is wider than the radius of "
            f"{1 / abs(curvature[k]):.1f} m; the points are too noisy (raise smoothing) or the widths wrong"
        )
    return Track(name, x, y, yaw, curvature, left, right, step, closed)


def _read(path):
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise TrackError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TrackError(f"{path}: not a readable text file ({error})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = [float(cell) for cell in line.replace(";", ",").split(",")]
        except ValueError:
            raise TrackError(f"{path}: line {number} is not numbers: {line[:60]!r}") from None
        if len(row) != 4 or not np.isfinite(row).all():
            raise TrackError(
                f"{path}: line {number}: expected four finite numbers (x, y, width right, width left), "
                f"got {line[:60]!r}"
            )
        if min(row[2:]) <= 0:
            raise TrackError(f"{path}: line {number}: a width is not positive")
        if not rows or _distance(row[:2], rows[-1][:2]) > 1e-6:
            rows.append(row)
    if len(rows) < 8:
        raise TrackError(f"{path}: {len(rows)} different points are too few; a track needs at least 8")
    table = np.array(rows)
    return table[:, :2], table[:, 2:]


def _check(path, points, closed):
    loop = _wrapped(points, closed)
    steps = np.diff(loop, axis=0)
    lengths = np.hypot(*steps.T)
    if closed and lengths[-1] > max(_MAX_SPACING, 0.1 * lengths[:-1].sum()):
        raise TrackError(f"{path}: its ends are {lengths[-1]:.1f} m apart, too far to close it")
    longest = int(lengths[: len(points) - 1].argmax())
    if lengths[longest] > _MAX_SPACING:
        raise TrackError(
            f"{path}: points {longest + 1} and {longest + 2} are {lengths[longest]:.1f} m apart; "
            f"at most {_MAX_SPACING:.0f} m can be interpolated"
        )
    crossing = _crossing(loop)
    if crossing is not None:
        first, second = crossing
        raise TrackError(
            f"{path}: the line crosses itself, after point {first + 1} and after point {second + 1}"
        )
    if closed:
        steps = np.concatenate([steps, steps[:1]])
    turn = np.arctan2(
        steps[:-1, 0] * steps[1:, 1] - steps[:-1, 1] * steps[1:, 0], (steps[:-1] * steps[1:]).sum(1)
    )
    sharpest = int(np.abs(turn).argmax())
    if abs(turn[sharpest]) > _MAX_TURN:
        raise TrackError(
            f"{path}: the line turns by {np.degrees(abs(turn[sharpest])):.0f} degrees at point "
            f"{(sharpest + 1) % len(points) + 1}; the points are too coarse there, or out of order"
        )


def _crossing(loop):
    """Returns the first two chords of a polyline [N, 2] that cross, or None."""
    a, b = loop[:-1], loop[1:]
    count = len(a)
    for i in range(count - 2):
        j = slice(i + 2, count - (i == 0 and np.array_equal(loop[0], loop[-1])))
        c, d = a[j], b[j]
        if not len(c):
            continue
        p, q = a[i], b[i]
        splits = (_side(p, q, c) * _side(p, q, d) < 0) & (_side(c, d, p) * _side(c, d, q) < 0)
        if splits.any():
            return i, i + 2 + int(splits.argmax())
    return None


def _side(o, p, q):
    """Which side of the line from o to p the point q is on, by sign; each [..., 2]."""
    return (p[..., 0] - o[..., 0]) * (q[..., 1] - o[..., 1]) - (p[..., 1] - o[..., 1]) * (
        q[..., 0] - o[..., 0]
    )


def _spline(points, closed, spacing, smoothing):
    """Returns x, y, yaw, curvature at equal arc lengths, their places among the points, and the spacing."""
    from scipy.interpolate import make_smoothing_spline

    loop = _wrapped(points, closed)
    chord = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(loop, axis=0).T))])
    total, count = chord[-1], len(points)
    knots, values = chord, loop
    if closed:
        # A few laps' ends on either side make the spline periodic to rounding.
        reach = min(count, max(8, int(np.searchsorted(chord, 20 * smoothing))))
        knots = np.concatenate([chord[-1 - reach : -1] - total, chord, chord[1 : reach + 1] + total])
        values = np.concatenate([points[-reach:], loop, loop[1 : reach + 1]])
    # The spline's response falls to a half at a wavelength of 2 pi (penalty times mean spacing)^(1/4).
    penalty = smoothing**4 / (total / (len(chord) - 1))
    along_x, along_y = (make_smoothing_spline(knots, value, lam=penalty) for value in values.T)
    fine = np.linspace(0.0, total, 20 * count + 1)
    speed = np.hypot(along_x(fine, 1), along_y(fine, 1))
    arc = np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(fine))])
    samples = max(8, round(arc[-1] / spacing))
    u = np.interp(np.linspace(0.0, arc[-1], samples + 1), arc, fine)
    u = u[:-1] if closed else u
    dx, dy = along_x(u, 1), along_y(u, 1)
    curvature = (dx * along_y(u, 2) - dy * along_x(u, 2)) / np.hypot(dx, dy) ** 3
    place = np.interp(u, chord, np.arange(len(loop)))
    yaw = np.unwrap(np.arctan2(dy, dx))
    return along_x(u), along_y(u), yaw, curvature, place, float(arc[-1]) / samples


def _wrapped(array, closed):
    return np.concatenate([array, array[:1]]) if closed else array


def _distance(p, q) -> float:
    return float(np.hypot(p[0] - q[0], p[1] - q[1]))
