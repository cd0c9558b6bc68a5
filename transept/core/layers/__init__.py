"""The layers that models are built from; each knows how its weights are stacked and, by its group, sharded."""
