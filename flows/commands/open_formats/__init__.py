"""What tools of others read of a root and its runs: the schema of each table, lineage, the log as JSON."""
