"""Judges of pages: an LLM (begin with `judge`), people (`label_form`), and how far they agree (`agreement`)."""
