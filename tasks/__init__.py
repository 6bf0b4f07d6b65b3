"""The work, stage by stage: crawl, refine, models, parse, retrieve, evaluate; pure cores, thin shells."""
