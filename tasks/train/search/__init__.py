"""What `search` learned from requests: its learned leg, its reranker, and the fit of what is read."""
