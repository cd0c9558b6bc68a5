"""Lines of printed numbers: what train.py learns from, and what evaluate.py asks. Every image follows from its seed.

Fonts are DejaVu and Liberation, as Debian packages them (fonts-dejavu, fonts-liberation).
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

HERE = Path(__file__).parent
FONT_FOLDERS = [Path("/usr/share/fonts/truetype/dejavu"), Path("/usr/share/fonts/truetype/liberation")]
TRAINED = [
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "LiberationSans-Regular"),
    *("LiberationSans-Italic", "LiberationSerif-Regular", "LiberationSerif-Bold", "LiberationMono-Regular"),
]
HELD_OUT = ["DejaVuSerif-Bold", "LiberationSans-Bold", "LiberationSerif-Italic", "LiberationMono-Bold"]
SYMBOLS = "0123456789.,:-/"


def number(draws: random.Random) -> str:
    """A date, a time, an amount or a plain number of up to 8 digits."""
    kind = draws.randrange(5)
    if kind == 0:
        return f"{draws.randrange(1, 32):02}.{draws.randrange(1, 13):02}.{draws.randrange(1900, 2100)}"
    if kind == 1:
        return f"{draws.randrange(2000, 2100)}-{draws.randrange(1, 13):02}-{draws.randrange(1, 32):02}"
    if kind == 2:
        return f"{draws.randrange(24)}:{draws.randrange(60):02}"
    if kind == 3:
        return f"{draws.randrange(1, 10 ** draws.randint(1, 5)):,}.{draws.randrange(100):02}"
    plain = str(draws.randrange(10 ** draws.randint(1, 8)))
    return plain if draws.random() < 0.7 else f"{plain[:4]}/{draws.randrange(100)}"


def line(text: str, font: str, draws: random.Random) -> Image.Image:
    """The text on paper of some shade, turned by up to 3 degrees, blurred and with noise."""
    size = draws.randint(18, 48)
    file = next(folder / f"{font}.ttf" for folder in FONT_FOLDERS if (folder / f"{font}.ttf").exists())
    face = ImageFont.truetype(str(file), size)
    left, top, right, bottom = face.getbbox(text)
    margins = [draws.randint(2, 2 + size // 3) for _ in range(4)]
    paper, ink = draws.randint(190, 255), draws.randint(0, 90)
    width, height = right - left + margins[0] + margins[1], bottom - top + margins[2] + margins[3]
    image = Image.new("L", (int(width), int(height)), paper)
    ImageDraw.Draw(image).text((margins[0] - left, margins[2] - top), text, fill=ink, font=face)
    image = image.rotate(draws.uniform(-3, 3), Image.Resampling.BILINEAR, expand=True, fillcolor=paper)
    if draws.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(draws.uniform(0.3, 0.03 * size)))
    noise = np.random.default_rng(draws.getrandbits(32)).normal(0, draws.uniform(0, 18), (image.height, image.width))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)).convert("RGB")


def sample(seed: int, fonts: list[str]) -> tuple[Image.Image, str]:
    """An image and what it says."""
    draws = random.Random(seed)
    text = number(draws)
    return line(text, draws.choice(fonts), draws), text
