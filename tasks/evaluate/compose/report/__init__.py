"""The report on plans: measured methods come in, SkillWeaver's tables go out; begin with `report`."""
