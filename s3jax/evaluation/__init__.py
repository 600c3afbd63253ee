"""Closed-loop driving in a source simulator, its metrics and its report. No JAX."""
