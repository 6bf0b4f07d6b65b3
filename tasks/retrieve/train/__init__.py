"""Training for routing and composing: skills and written requests come in, weights go out; begin with `rows` for
routing and with `composing` for plans."""
