"""Proximal policy optimisation as one jitted program over a batch of environments. JAX."""
