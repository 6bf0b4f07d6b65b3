"""Duplicates, exact and near: documents come in, folds onto survivors go out; begin with `exact`."""
