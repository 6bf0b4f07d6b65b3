"""Installs skills: an edition comes in; its files, and a lock, go to a folder; begin with `contents`.

It is no part of `storage`, since its lock knows documents, licences and risks.
"""
