"""Answers for any protocol: requests come in, answers of one version go out; begin with `tools`."""
