"""Everything that is not text: from raw data to what an encoder takes.

A plugin's input mapper imports from here: `MappedInput` is what it returns, `MediaError` what it raises when the data
does not fit the model. `transept.multimodal.audio` and `image` decode; `log_mel` and `image_processing` make features.
"""

from transept.errors import MediaError
from transept.multimodal.mapping import EncoderPrompt, InputMapper, MappedInput, map_input

__all__ = ["EncoderPrompt", "InputMapper", "MappedInput", "MediaError", "map_input"]
