"""Suffixes of recordings and images, and names without them.

Called by the commands, for the files that they take and write, and by the server, for the names of its files.
"""

from __future__ import annotations

from pathlib import Path

# Suffixes of files taken from folders. Not .ts, which is usually TypeScript. Patterns take every file except results.
AUDIO = "aac ac3 aif aifc aiff amr ape au caf dts flac m4a m4b mka mp2 mp3 mpga oga ogg opus ra spx w64 wav weba wma wv"
VIDEO = "3g2 3gp asf avi flv m2ts m4v mkv mov mp4 mpeg mpg mts mxf ogv vob webm wmv"
MEDIA = frozenset(f".{suffix}" for suffix in (*AUDIO.split(), *VIDEO.split()))
IMAGES = frozenset(
    (".bmp", ".gif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
)
PDF = ".pdf"
# Suffixes of other recordings and images, which a command takes only if they are named.
RARER = (
    "3ga 3gp2 3gpp 3gpp2 aa3 aax ac4 adts alaw amv aob au3 avif awb bwf dat dff divx dsf dss dv eac3 ec3 f4a f4b f4v "
    "g722 g729 gsm heic heif jfif jp2 m1a m1v m2a m2t m2v m4p m4r mj2 mk3d mlp mod mp1 mp4v mpa mpc mpe mpv mxg nist "
    "nut oma ogx pcm qt ram raw rf64 rm rmvb shn sln snd sph swf tak thd tod ts tta ulaw voc wave wtv xvid"
)
KNOWN = MEDIA | IMAGES | {PDF, *(f".{suffix}" for suffix in RARER.split())}


def split_suffix(name: str) -> tuple[str, str]:
    """Return a file's name without its suffix, and the suffix without its dot: empty for a suffix that is not in KNOWN.

    So ``"Vol. 2"`` and ``"talk.v1"`` keep their whole names, and ``"Vol. 2.mp3"`` becomes ``"Vol. 2"``.
    """
    path = Path(name)
    if path.suffix.lower() not in KNOWN:
        return path.name, ""
    return path.stem, path.suffix.removeprefix(".")
