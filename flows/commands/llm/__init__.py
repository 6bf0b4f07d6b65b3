"""The LLM that is set up, for commands: settings in, what asks it out; begin with `opened`."""
