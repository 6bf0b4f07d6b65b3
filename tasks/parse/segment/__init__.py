"""Segmentation: a Markdown body comes in, fragments and headings go out; begin with `segment`."""
