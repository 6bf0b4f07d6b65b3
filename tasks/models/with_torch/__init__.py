"""What loads torch: encoders and rerankers of published pipelines; `tasks.train` trains them."""
