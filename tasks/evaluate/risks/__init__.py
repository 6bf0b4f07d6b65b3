"""Risks on a bench: labelled skills come in, shares found by class and place go out; begin with `bench`."""
