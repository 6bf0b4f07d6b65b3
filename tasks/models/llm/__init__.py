"""The client of an OpenAI-compatible endpoint: questions in, checked answers out; begin with `client`."""
