"""The measures: rankings, evidence, node types, and statistics over them; begin with `ranking`."""
