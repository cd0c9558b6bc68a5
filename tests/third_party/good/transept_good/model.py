class GoodForConditionalGeneration:
    """Stands where a plugin has its model."""
