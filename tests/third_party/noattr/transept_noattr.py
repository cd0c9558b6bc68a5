# The entry point names an attribute `plugin`, which is not here.
