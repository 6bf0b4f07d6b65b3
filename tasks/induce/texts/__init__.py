"""Texts that an LLM reads and writes of runs: redacted, checked, and states summed up."""
