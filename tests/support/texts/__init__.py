"""Texts written for the tests of parse and refine."""
