"""Source simulators: the protocol, the embedded multi-body car, scripted drivers and the recorder. No JAX."""
