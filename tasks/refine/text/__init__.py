"""Text of a document: bytes come in, a canonical, redacted body goes out; begin with `encodings`, then `canonical`.

`words` and `markdown` serve all later stages.
"""
