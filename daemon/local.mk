# hearthd and hearth-engine.
