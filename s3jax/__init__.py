"""s3jax: distil a vehicle simulator, train control policies inside it, drive the simulator with them.

Importing this package loads neither JAX nor TensorFlow nor beamngpy; the sub-packages do when needed.
"""

__version__ = "0.1.0"
