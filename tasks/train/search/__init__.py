"""What `search` learned from requests: its learned leg and its reranker."""
