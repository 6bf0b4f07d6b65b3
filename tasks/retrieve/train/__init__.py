"""Training: skills and written requests come in, weights go out; begin with `rows`, for plans `composing`."""
