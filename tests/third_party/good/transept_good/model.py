from transept.plugins.bart.model import BartForConditionalGeneration


class GoodForConditionalGeneration(BartForConditionalGeneration):
    """Stands where a plugin has its model."""
