"""Roots with hand-written skills, and the nights that fill them."""
