"""Audio and images: from raw data to an encoder's input.

A plugin's input mapper imports from here: it returns a `MappedInput`, and raises `MediaError` if the data does not fit
the model. `transept.multimodal.audio` and `image` decode; `log_mel` and `image_processing` compute features.
"""

from transept.errors import MediaError
from transept.multimodal.mapping import EncoderPrompt, InputMapper, MappedInput, map_input

__all__ = ["EncoderPrompt", "InputMapper", "MappedInput", "MediaError", "map_input"]
