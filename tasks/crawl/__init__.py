"""From marketplaces to raw parts: `sources` opens a source, `collect` reads it, `intake` writes its parts."""
