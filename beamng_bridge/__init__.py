"""Driving with an exported policy: NumPy, and beamngpy where the game is driven. Never JAX."""
