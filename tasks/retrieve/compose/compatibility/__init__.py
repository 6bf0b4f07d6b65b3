"""Compatibility of what serves the steps of a plan (SkillWeaver, equation 4); begin at `selection`."""
