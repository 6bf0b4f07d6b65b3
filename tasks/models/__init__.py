"""Encoders and clients of models, below every stage: texts come in, vectors and visible texts go out."""
