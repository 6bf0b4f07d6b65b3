"""Text of a document: bytes come in, a canonical, redacted body goes out; begin with `encodings`.

`words` and `markdown` serve all later stages.
"""
