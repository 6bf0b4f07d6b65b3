"""Adapters: what a root serves, as retrievers of other libraries; each needs the extra of its name."""
