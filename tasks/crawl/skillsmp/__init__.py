"""The SkillsMP marketplace: pages of its list come in, rows go out; begin with `source`."""
