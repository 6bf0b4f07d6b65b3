"""Loopback hosts, archives and crawls."""
