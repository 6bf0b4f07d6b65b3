"""Judges of pages: an LLM (begin with `judge`), people (`label_form`), and their agreement (`agreement`)."""
