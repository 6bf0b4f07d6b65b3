"""Refine: raw SKILL.md files into clean, attributed documents, or a drop with its reason."""

STAGE_VERSION = 6
