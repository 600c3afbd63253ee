"""Driving scenarios: readers of the Waymo Open Motion Dataset, a procedural generator, storage and tags."""
