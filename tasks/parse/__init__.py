"""Takes each document apart into typed nodes and edges."""

STAGE_VERSION = 1  # raised only when this stage's output changes
