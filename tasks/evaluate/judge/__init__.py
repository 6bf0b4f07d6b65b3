"""Judges of pages: an LLM and how judges agree (begin with `judge`), and people (`label_form`)."""
