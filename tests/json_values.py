"""JSON documents broken value by value, as a seed says."""

import copy
import json
import random

ODD = [None, True, 0, 1, -1, 2**31, 2**64, 10**30, 1.5, -0.5, float("nan"), "", "x", "64", "\ud800", "</s>"]
ODD += [[], {}, [[]], [1], ["x"], {"x": 1}, [None]]


def values_changed(content: bytes, rng: random.Random) -> bytes:
    """A JSON document with values replaced by odd ones, or left out."""
    tree = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        holders = [(holder, key) for holder in holders_of(tree) for key in keys_of(holder)]
        if not holders:
            break
        holder, key = rng.choice(holders)
        if isinstance(holder, dict) and rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(tree).encode()


def holders_of(tree: object) -> list[dict | list]:
    if not isinstance(tree, dict | list):
        return []
    return [tree, *(holder for key in keys_of(tree) for holder in holders_of(tree[key]))]


def keys_of(holder: dict | list) -> list:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))
