"""Encoders and clients of models, below every stage: texts come in, vectors go out."""
