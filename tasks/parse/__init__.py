"""Takes each document apart into typed nodes and edges."""

STAGE_VERSION = 1  # raised only when this stage's output changes
LOCAL = "local-6"  # the local classifier: its name changes whenever its answers do
