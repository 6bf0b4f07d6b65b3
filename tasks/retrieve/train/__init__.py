"""Training data for routing: a corpus comes in, pairs with hard negatives go out."""
