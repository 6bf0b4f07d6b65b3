"""The measures: evidence in contexts, node types, and statistics over queries; begin with `evidence`."""
