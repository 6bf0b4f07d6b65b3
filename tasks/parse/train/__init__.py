"""Training of the packaged classifiers, run by hand: labelled fragments come in, weights go out."""
