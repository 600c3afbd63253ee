"""Speed of dynamics models as simulators."""

import functools
import time

import jax
import jax.numpy as jnp

from s3jax.dynamics.base import Dynamics
from s3jax.spatial.state import VehicleState


def speed(model: Dynamics, params, environments: int = 1024, steps: int = 100, repeats: int = 3) -> dict:
    """Times a model alone, in a jitted scan over many cars with random controls.

    Returns:
      `steps_per_second` (environment steps, best of the repeats), `compile_seconds` and `flops`, XLA's
      estimate of the floating-point operations of one environment step.
    """
    key = jax.random.key(0)
    zeros = jnp.zeros(environments)
    start = VehicleState(**{name: zeros for name in VehicleState._fields})._replace(vx=zeros + 15.0)
    carry = jax.jit(jax.vmap(functools.partial(model.reset, params)))(start)
    controls = jax.random.uniform(key, (steps, environments, 2), minval=-0.3, maxval=0.3)
    friction = jnp.ones((environments, 2))
    step = jax.vmap(functools.partial(model.step, params))

    @jax.jit
    def run(carry, controls):
        carry, _ = jax.lax.scan(
            lambda carry, control: (step(carry, control, friction)[0], None), carry, controls
        )
        return carry.state.x

    began = time.perf_counter()
    compiled = run.lower(carry, controls).compile()
    compile_seconds = time.perf_counter() - began
    best = float("inf")
    for _ in range(repeats + 1):  # the first one warms up
        began = time.perf_counter()
        compiled(carry, controls).block_until_ready()
        best = min(best, time.perf_counter() - began)
    # A scan's body is counted once by XLA, whatever its length.
    one = jax.jit(step).lower(carry, controls[0], friction).compile().cost_analysis()
    return {
        "steps_per_second": environments * steps / best,
        "compile_seconds": compile_seconds,
        "flops": one["flops"] / environments,
    }


def matmul_peak(size: int = 1024, repeats: int = 5) -> float:
    """Returns the floating-point operations per second of a float32 matrix product of this size."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        product(a, a).block_until_ready()
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best


def table(models: dict, environments: int = 1024) -> str:
    """Returns a Markdown table of the speed of models, name -> (model, params)."""
    peak = matmul_peak()
    lines = [
        "| model | steps/s | kFLOP per step | share of matmul peak | compile (s) |",
        "|---|---|---|---|---|",
    ]
    for name, (model, params) in models.items():
        r = speed(model, params, environments)
        share = r["flops"] * r["steps_per_second"] / peak
        lines.append(
            f"| {name} | {r['steps_per_second']:,.0f} | {r['flops'] / 1e3:.1f} | {100 * share:.1f} % | "
            f"{r['compile_seconds']:.1f} |"
        )
    lines.append(f"\nMatmul peak here: {peak / 1e9:.0f} GFLOP/s (float32).")
    return "\n".join(lines)
