"""An LLM as judge of pages: a request and a context come in, a verdict goes out; begin with `judge`."""
