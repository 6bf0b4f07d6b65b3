"""Training of models for routing; begin at `routing`."""
