"""Keywords that the sweep asks SkillsMP for, a few a night, to meet what the newest rows do not show."""

from __future__ import annotations

import string

# Words that names and descriptions of skills are made of; the most common ones stand first.
_WORDS = """
using creating data testing patterns documentation design management analysis workflow api security agent
project content task expert database deployment implementing context integration performance planning
research review code frontend backend generator guide writing web react github git framework claude
markdown metrics requirements search architecture automation html python product model infrastructure
configuration production memory compliance cli docker sql marketing component format audit decision
prompt server css rules tdd seo plan email style training library service incident quality typescript llm
protocol validation mobile cloud aws azure gcp kubernetes terraform devops monitoring logging tracing
debugging error refactoring migration schema query postgres supabase redis graphql rest authentication
encryption privacy vulnerability threat malware forensics network linux windows macos ios android swift
kotlin flutter rust golang java csharp php ruby rails django fastapi spring nextjs vue angular svelte
tailwind accessibility animation figma brand image video audio speech music photo pdf docx xlsx pptx
spreadsheet slides diagram mermaid chart dashboard visualization statistics forecast machine learning
embedding rag vector notebook pandas excel finance accounting invoice tax trading crypto blockchain legal
contract health medical biology chemistry physics math education lesson language translation grammar
story blog social youtube podcast newsletter sales customer support crm hiring interview resume meeting
calendar notes obsidian notion slack jira linear travel recipe game unity unreal godot robot hardware
embedded arduino geospatial map weather news scraping browser playwright selenium e2e unit benchmark
profiling cache queue streaming kafka spark airflow etl pipeline release changelog commit branch merge
issue ticket sprint roadmap strategy startup pricing survey persona journey brief template checklist
skill plugin hook mcp tool orchestrator subagent session knowledge ontology taxonomy archive
"""


def sweep_keywords() -> tuple[str, ...]:
    """Return the sweep's keywords in the order in which they are asked for, each once.

    After the words come single letters and digits, for what has none of the words in it.
    """
    return tuple(dict.fromkeys([*_WORDS.split(), *string.ascii_lowercase, *string.digits]))
