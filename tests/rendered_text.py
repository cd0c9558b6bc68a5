"""Images that say something: lines of text as Pillow draws them, in its own font, for tests."""

import io

from PIL import Image, ImageDraw, ImageFont

LINES = ("Dear Sir,", "I beg to differ", "page 7", "Größe: 3 m", "No. 1848 / b")


def line_image(
    text: str, size: tuple[int, int] = (160, 40), *, ink: str = "black", paper: str = "white"
) -> Image.Image:
    """size: width, height."""
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).text((4, 4), text, fill=ink, font=ImageFont.load_default(size[1] // 2))
    return image


def encoded_line(text: str, file_format: str = "PNG", **options) -> bytes:
    """The bytes of a file. options: of line_image."""
    file = io.BytesIO()
    line_image(text, **options).save(file, file_format)
    return file.getvalue()
