"""Drafts of skills in, skills that an LLM named, described and wrote out; begin with `inducer`."""
