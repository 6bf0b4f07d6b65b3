"""IO words: English words and products that tell the types a text speaks of, and the verbs that use them."""

from __future__ import annotations

# Types of what is handed from step to step, with words and well-known products that name them.
TYPES = {
    "text": """
    text txt sentence paragraph article news headline summary summarise summarize transcript caption
    subtitle translation translate prompt lyric quote fact definition encyclopedia wikipedia paper arxiv
    pubmed literature research knowledge memory wording essay story
    """,
    "file": """
    file folder directory upload download attachment storage drive dropbox s3 bucket backup archive zip
    blob filesystem asset
    """,
    "document": """
    document pdf docx markdown latex epub ebook note notebook wiki report contract presentation slide
    powerpoint pptx notion confluence obsidian evernote gdoc doc documentation template bibliography
    zotero
    """,
    "table": """
    table csv excel xlsx spreadsheet sheet row column dataset data sql sqlite postgres postgresql mysql
    mariadb mongodb clickhouse snowflake bigquery redshift duckdb database warehouse airtable parquet
    json statistic record dataframe pandas analytic redis elasticsearch supabase
    """,
    "image": """
    image photo picture png jpg jpeg svg screenshot thumbnail drawing illustration chart plot graphic
    figure logo icon qr artwork painting visualisation visualization visualise visualize wallpaper figma
    photoshop canva meme avatar infographic
    """,
    "audio": """
    audio voice speech sound song music podcast mp3 wav recording spotify elevenlabs tts playlist melody
    midi narration spoken radio
    """,
    "video": """
    video youtube movie film clip mp4 animation footage bilibili vimeo tiktok ffmpeg
    """,
    "code": """
    code repository repo commit branch script function package github gitlab bitbucket git snippet sdk
    codebase compiler pipeline container docker kubernetes
    """,
    "page": """
    page web website webpage site url html browser chrome playwright puppeteer domain blog rss feed
    wordpress crawl scrape sitemap
    """,
    "message": """
    message email mail gmail outlook inbox sms chat slack discord telegram whatsapp notification notify
    post tweet twitter mastodon bluesky linkedin reddit newsletter comment announcement alert wechat
    """,
    "ticket": """
    ticket issue task todo bug board jira linear asana trello clickup monday zendesk freshdesk backlog
    sprint reminder kanban incident pagerduty servicenow redmine
    """,
    "event": """
    event calendar meeting appointment schedule booking reservation book availability ical date deadline
    flight hotel itinerary train ticketmaster concert timezone
    """,
    "place": """
    place map address location coordinate geocode route city country region geospatial gis weather
    forecast restaurant nearby travel airport latitude openstreetmap trip
    """,
    "price": """
    price stock crypto cryptocurrency exchange market ticker trading portfolio fund bond currency coin
    bitcoin ethereum nft defi odds cost fare valuation earnings finance financial
    """,
    "contact": """
    contact person people lead customer client profile company organisation organization crm hubspot
    salesforce candidate employee audience supplier odoo player doctor patient
    """,
    "payment": """
    payment invoice order transaction wallet purchase checkout stripe paypal shopify refund subscription
    shop cart delivery shipment accounting quickbooks xero billing
    """,
    "model": """
    3d cad mesh blender openscad stl scene diagram graph ontology neo4j flowchart mermaid uml simulation
    molecule protein blueprint
    """,
    "measure": """
    metric log trace telemetry monitoring sensor temperature score benchmark performance usage uptime
    grafana prometheus datadog sentry dashboard vulnerability cve threat risk audit
    """,
}

# Verbs by what happens to the object: it comes out, it goes in, or both.
GIVING = """
    search find get fetch retrieve list query read lookup look browse access provide return show discover
    explore capture take download scrape crawl monitor track check compare offer obtain collect gather
    pull see watch
"""
TAKING = """
    send post publish upload store save import analyse analyze process parse inspect play share notify
    index ingest review validate scan deploy execute run put append attach drop push forward enter submit
    tell announce remind ping pay
"""
# The object goes in; what stands after `to` or `into` comes out.
CONVERTING = "convert transform turn change translate transcribe export compile migrate synthesise synthesize"
# The object comes out; what stands after `from` goes in.
MAKING = (
    "extract generate create make build render produce draw derive design compose detect recognise recognize"
)

# What a word alone says of both sides: what goes in, and what comes out.
IMPLIED = {
    "transcribe": ("audio video", "text"),
    "transcription": ("audio video", "text"),
    "ocr": ("image document", "text"),
    "tts": ("text", "audio"),
    "screenshot": ("page", "image"),
    "scrape": ("page", "text table"),
    "crawl": ("page", "text"),
    "geocode": ("text place", "place"),
    "translate": ("text", "text"),
    "summarise": ("text", "text"),
    "summarize": ("text", "text"),
    "visualise": ("table", "image"),
    "visualize": ("table", "image"),
    "visualization": ("table", "image"),
    "chart": ("table", "image"),
    "plot": ("table", "image"),
    "forecast": ("place", "table text"),
    "qr": ("text page", "image"),
    "sql": ("text", "table"),
}

# How well a type passes for another; what is not here is derived, or does not pass.
COERCIONS = {
    ("image", "file"): 0.8, ("audio", "file"): 0.8, ("video", "file"): 0.8, ("document", "file"): 0.8,
    ("table", "file"): 0.8, ("code", "file"): 0.8, ("model", "file"): 0.8, ("file", "document"): 0.6,
    ("file", "image"): 0.5, ("file", "audio"): 0.5, ("file", "video"): 0.5, ("file", "table"): 0.5,
    ("file", "code"): 0.5, ("video", "audio"): 0.8, ("video", "image"): 0.5, ("model", "image"): 0.6,
    ("page", "text"): 0.8, ("document", "text"): 0.8, ("message", "text"): 0.8, ("ticket", "text"): 0.8,
    ("text", "message"): 0.8, ("text", "document"): 0.8, ("text", "ticket"): 0.7, ("text", "page"): 0.6,
    ("price", "table"): 0.8, ("measure", "table"): 0.8, ("payment", "table"): 0.8, ("contact", "table"): 0.7,
    ("table", "document"): 0.6, ("image", "document"): 0.6, ("contact", "message"): 0.7,
    ("event", "message"): 0.6, ("ticket", "message"): 0.6, ("measure", "ticket"): 0.7,
    ("place", "event"): 0.6, ("event", "place"): 0.6, ("page", "document"): 0.6, ("image", "message"): 0.6,
}  # fmt: skip
ANY_TO_TEXT = 0.5  # whatever a step gives can be told in words
