"""Drawings of a plan: its JSON comes in, a picture or Mermaid text goes out; begin with `picture`."""
