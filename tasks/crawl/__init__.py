"""From marketplaces to raw parts: `sources` opens a source, `collect` reads it, `raw_parts` are its files."""
