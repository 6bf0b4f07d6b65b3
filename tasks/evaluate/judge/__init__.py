"""Judges of pages: a language model, people by their labels, and how far two agree; begin with `judge`."""
