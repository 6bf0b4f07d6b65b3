"""A marketplace on loopback: SkillsMP, GitHub and an MCP registry, which misbehave when they are told to."""
