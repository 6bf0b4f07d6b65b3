"""Paging: a document and a request come in, a sufficient context goes out; begin with `facets`.

`selection` says what ends a page.
"""
