"""Real models and the paper's data sets: the stages that stand in the place of the miniature's."""
