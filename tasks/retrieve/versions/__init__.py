"""Versions: publication, rollback, retention, doctor and forget; begin with `publish`."""
