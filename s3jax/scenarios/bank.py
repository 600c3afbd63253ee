"""A bank of scenarios as a few stacked arrays, which the environment takes as an argument.

The JAX environment puts the bank on the device once; an environment carries an index into it, and a reset is
a gather. Everything here is array-generic: NumPy in NumPy, JAX arrays also under `jit` with a traced index.
"""

from typing import Any, NamedTuple

import numpy as np

from s3jax.spatial.friction import FrictionMap
from s3jax.spatial.reference import Reference

_NOWHERE = 1e6
"""Where the corners of unused patches lie (m): all in one point, so that nothing is inside."""


class ScenarioBank(NamedTuple):
    """References and friction of S scenarios.

    Attributes:
      samples: [S * T, 5] float32 reference samples x, y (m), yaw (rad), speed (m/s), curvature (1/m), T rows
        per scenario, stored end to end; rows behind a scenario's `size` repeat its last one.
      size: [S] int32 rows that belong to each reference, extension included.
      length: [S] int32 rows that count.
      base: [S] float32 friction outside every patch.
      polygons: [S, P, K, 2] float32 corners of the patches (m).
      values: [S, P] float32 friction inside each.
    """

    samples: Any
    size: Any
    length: Any
    base: Any
    polygons: Any
    values: Any


class BankShape(NamedTuple):
    """Size of a bank's arrays beside the number of scenarios: rows of a reference, patches, their corners."""

    rows: int
    patches: int
    corners: int

    @classmethod
    def of(cls, tasks) -> "BankShape":
        """Returns the smallest shape that holds pairs of a reference and a friction map."""
        return cls(
            rows=max(int(reference.size) for reference, _ in tasks),
            patches=max(len(friction.values) for _, friction in tasks),
            corners=max(friction.polygons.shape[1] for _, friction in tasks),
        )


def make_bank(scenarios) -> ScenarioBank:
    """Stacks scenarios, padding to the longest reference and the most patches and corners.

    Raises:
      ValueError: if there is no scenario or they differ in `dt`.
    """
    if not scenarios:
        raise ValueError("a scenario bank needs at least one scenario")
    if len({scenario.dt for scenario in scenarios}) > 1:
        raise ValueError(f"scenarios of different dt: {sorted({scenario.dt for scenario in scenarios})}")
    tasks = [(scenario.reference, scenario.friction) for scenario in scenarios]
    return fill_bank(tasks, BankShape.of(tasks))


def fill_bank(tasks: list[tuple[Reference, FrictionMap]], shape: BankShape) -> ScenarioBank:
    """Stacks references and friction maps, padded to a shape that holds them all."""
    samples = np.empty((len(tasks), shape.rows, 5), np.float32)
    polygons = np.full((len(tasks), shape.patches, shape.corners, 2), _NOWHERE, np.float32)
    values = np.ones((len(tasks), shape.patches), np.float32)
    for row, (reference, friction) in enumerate(tasks):
        own = reference.samples[reference.offset : reference.offset + reference.size]
        samples[row, : len(own)] = own
        samples[row, len(own) :] = own[-1]
        count, corners = friction.polygons.shape[:2]
        if count:
            polygons[row, :count, :corners] = friction.polygons
            polygons[row, :count, corners:] = friction.polygons[:, -1:]
            values[row, :count] = friction.values
    return ScenarioBank(
        samples=samples.reshape(-1, 5),
        size=np.array([reference.size for reference, _ in tasks], np.int32),
        length=np.array([reference.length for reference, _ in tasks], np.int32),
        base=np.array([friction.base for _, friction in tasks], np.float32),
        polygons=polygons,
        values=values,
    )


def reference(bank: ScenarioBank, i) -> Reference:
    """Returns the reference of scenario `i` ([] integer, may be traced); the samples are not copied."""
    rows = bank.samples.shape[0] // bank.size.shape[0]
    return Reference(samples=bank.samples, offset=i * rows, size=bank.size[i], length=bank.length[i])


def friction(bank: ScenarioBank, i) -> FrictionMap:
    """Returns the friction map of scenario `i` ([] integer, may be traced)."""
    return FrictionMap(base=bank.base[i], polygons=bank.polygons[i], values=bank.values[i])
