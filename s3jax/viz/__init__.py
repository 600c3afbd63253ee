"""Pictures, animations and the HTML page. No JAX."""
