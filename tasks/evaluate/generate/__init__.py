"""Benches that an LLM writes: skills come in, requests or distractors go out; begin with `requests`."""
