"""What libraries that differentiate need to know of queries; `robodyn.jax` and `robodyn.torch` are made of it."""
