"""What loads torch: encoders and rerankers of published pipelines, and their training."""
