"""Choosing the array namespace from the arguments."""

import numpy as np


def namespace(*arrays):
    """Returns the array namespace of the arguments: that of the first non-NumPy array, else NumPy.

    Python and NumPy scalars do not count, so a mix of NumPy constants and JAX arrays gives
    ``jax.numpy``, also while tracing.
    """
    for array in arrays:
        if hasattr(array, "__array_namespace__") and not isinstance(array, np.ndarray | np.generic):
            return array.__array_namespace__()
    return np
