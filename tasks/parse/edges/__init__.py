"""Edges: from a document's nodes and vectors to how they depend on each other; begin at `rules`."""
