"""Installing skills into the folder of an agent: what `install`, `outdated`, `update` and `remove` do."""
