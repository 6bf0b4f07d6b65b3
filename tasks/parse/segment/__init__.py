"""Segmentation: a Markdown body comes in, nodes and heading spans go out; begin with `segment`."""
