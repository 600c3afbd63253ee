"""Waymax, the simulator of Waymo's logs, as a place to train and to drive in. Needs the real package.

`s3jax.scenarios.waymax` converts scenes and states and needs no Waymax to be imported.
"""
