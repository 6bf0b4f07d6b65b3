"""The work, stage by stage: models, crawl, refine, parse, induce, retrieve, evaluate, train; pure cores."""
