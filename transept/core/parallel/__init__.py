"""A model split among processes: groups of ranks, stages of a pipeline, how processes start and what they exchange."""
