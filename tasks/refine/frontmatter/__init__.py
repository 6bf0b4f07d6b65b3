"""Front matter: a SKILL.md comes in, fields and findings go out; begin with `frontmatter`."""
