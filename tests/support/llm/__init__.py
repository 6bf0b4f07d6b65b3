"""A server that speaks OpenAI's protocol, and what asks it."""
