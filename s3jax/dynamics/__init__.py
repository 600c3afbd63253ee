"""Vehicle dynamics models in JAX: from a kinematic bicycle to a residual transformer, behind one protocol.

Import the parts: `s3jax.dynamics.base` is the protocol, `s3jax.dynamics.store` makes, saves and loads
models, and each other module that ends in a configuration class is a model.
"""
