"""Served rows written for tests of benches of plans: small, each with a text that says what it does."""

from __future__ import annotations

import hashlib

import numpy as np

from tasks.evaluate.generate.plans.served_rows import ServedRow

TEXTS = {
    "orchard/apple-prices": ("Markets", "An MCP server that provides real-time wholesale apple prices."),
    "fen/heron-mcp": ("Birds", "Search bird sightings and list ringing stations in Heron."),
    "fen/heron-mcp-copy": ("Birds", "Search bird sightings and list ringing stations in Heron."),
    "lido/tide-mcp": ("Sea", "Lets AI agents query tide tables with natural language."),
    "mill/flour-papers": ("Science", "Search and read research papers from GrainArchive."),
    "rail/night-trains": ("Travel", "Provides train schedules and live travel information."),
    "sky/weather": ("Weather", "Access real-time weather data for any location."),
    "post/pigeon-mcp": ("Messages", "Pigeon integration for sending messages and reading channels."),
    "post/owlmail-mcp": ("Messages", "OwlMail server to send and organize emails."),
    "desk/jotter-mcp": ("Notes", "Create and search notes in Jotter."),
    "desk/chores-mcp": ("Tasks", "Chores: manage tasks and due dates."),
    "desk/fixit-mcp": ("Tasks", "Manage projects and issues through the FixIt API."),
    "draw/plotter-mcp": ("Charts", "Generate visual charts with Plotter."),
    "tongue/babel-mcp": ("Languages", "Babel API for translating text between languages."),
    "code/lint-mcp": ("Code", "Scans npm package dependencies for known holes."),
    "news/herald-mcp": ("News", "Herald news search for articles."),
    "web/finder-mcp": ("Web", "Web search using Finder, a powerful engine."),
    "money/ledger-mcp": ("Money", "Read bank transactions and recurring payments in Ledger."),
    "net/where-mcp": ("Network", "IP address geolocation for LLMs."),
    "jobs/hire-mcp": ("Work", "A server for searching job listings with filters."),
    "photo/lens-mcp": ("Pictures", "AI image generation using Lens."),
    "cal/datebook-mcp": ("Calendar", "Manage your calendar with DateBook."),
    "sheet/gridly-mcp": ("Sheets", "Create and edit spreadsheets in Gridly."),
    "dev/nothing": ("Other", "The most powerful MCP ever."),
    "dev/blank": ("Other", ""),
    "skill/bread": (None, "Bakes wheat bread with yeast at home"),
    "skill/bike": (None, "Repairs a bicycle: punctures, chain and brakes"),
}


def plan_rows() -> list[ServedRow]:
    """Return the rows; copies share their vector and hash, and no others are near each other."""
    rows = []
    for doc_id, (category, text) in TEXTS.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        vector = np.random.default_rng(int(digest[:8], 16)).normal(size=384).astype(np.float32)
        rows.append(ServedRow(doc_id, doc_id, text, category, digest, vector))
    return rows
