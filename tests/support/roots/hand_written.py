"""Skills written for the tests, small enough to be known by heart."""

from __future__ import annotations


def skill(name: str, description: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


BREAD = skill(
    "bread",
    "Bakes wheat bread with yeast at home",
    """# Bread

Weigh flour, water, salt and yeast before anything else.

## Steps

1. Knead the dough for ten minutes until it stretches without tearing.
2. Let the dough rise under a damp cloth for two hours.
3. Bake at 230 degrees and knock on the crust: it must sound hollow.

If the crumb is sticky then give the loaf ten more minutes.
""",
)
BEES = skill(
    "bees",
    "Looks after honey bees through the year",
    """# Bees

You need a veil, a smoker and a hive tool.

- Open the hive only when it is warmer than fifteen degrees outside.
- Feed sugar syrup in October, never honey from another colony.
- Treat the colony against varroa mites with oxalic acid in December.

```bash
log-hive --colony 3 --weight 31
```
""",
)
BIKE = skill(
    "bike",
    "Repairs a bicycle: punctures, chain and brakes",
    """# Bicycle

Turn the bicycle upside down before you take out a wheel.

## Puncture

Roughen the tube with sandpaper, apply the vulcanising glue, wait until it is dry, press on the patch.

## Chain

| wear | what to do |
|---|---|
| 0.5 | order a chain |
| 0.75 | change chain and sprockets |
""",
)
TEA = skill(
    "お茶",
    "緑茶をいれる方法",
    """# 緑茶

お湯を七十度まで冷ましてから急須に注ぎます。
一分待って、最後の一滴まで注ぎ切ります。
""",
)
SKILLS = {"bread": BREAD, "bees": BEES, "bike": BIKE, "tea": TEA}
