"""Configs that are read without transformers, beside those that transformers makes of the same files."""

from transept.authoring import WeightMap
from transept.errors import CheckpointError

ITS_OWN = {"_name_or_path", "transformers_version"}  # which say where transformers read the file, and who
NOT_READ = ITS_OWN | {"id2label", "label2id"}  # of a config


def both(read, *weight_maps: WeightMap):
    """What is made by each; of an error its message."""
    made = []
    for weight_map in weight_maps:
        try:
            made.append(read(weight_map))
        except CheckpointError as error:
            made.append(str(error))
    return made


def same(ours, theirs, apart=frozenset()):
    """Whether one has the values of the other, and no more than it. What is not set is None for transformers."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    known = {name: getattr(theirs, name) for name in theirs.to_dict() if name not in apart}
    others = {name for name in ours.to_dict() if name not in apart and not hasattr(theirs, name)}
    return not others and all(repr(getattr(ours, name, None)) == repr(value) for name, value in known.items())
