"""Geometry, references, observations and metrics that JAX (training) and NumPy (driving) share.

Every function takes its array namespace from its arguments, writes nothing in place and has no
data-dependent shapes, so the same code runs under ``jax.jit`` and in a process without JAX.
"""
