"""Tiny models, and models of single words."""
