// Names of downloads, as transept/cli/suffixes.py makes them. Called by downloads.js and image-tab.js.

// Suffixes of recordings and images; a name keeps any other: "Vol. 2", "talk.v1".
export const SUFFIXES = new Set(
  (
    "3g2 3ga 3gp 3gp2 3gpp 3gpp2 aa3 aac aax ac3 ac4 adts aif aifc aiff alaw amr amv aob ape asf au au3 avi avif awb " +
    "bmp bwf caf dat dff divx dsf dss dts dv eac3 ec3 f4a f4b f4v flac flv g722 g729 gif gsm heic heif jfif jp2 jpe " +
    "jpeg jpg m1a m1v m2a m2t m2ts m2v m4a m4b m4p m4r m4v mj2 mk3d mka mkv mlp mod mov mp1 mp2 mp3 mp4 mp4v mpa mpc " +
    "mpe mpeg mpg mpga mpv mts mxf mxg nist nut oga ogg ogv ogx oma opus pbm pcm pdf pgm png pnm ppm qt ra ram raw " +
    "rf64 rm rmvb shn sln snd sph spx swf tak thd tif tiff tod ts tta ulaw vob voc w64 wav wave weba webm webp wma " +
    "wmv wtv wv xvid"
  ).split(" "),
);

/** A file's name without its suffix. */
export function stemOf(name) {
  const [, stem, suffix] = name.match(/^(.+)\.([^.]+)$/s) ?? [];
  return suffix && SUFFIXES.has(suffix.toLowerCase()) ? stem : name;
}
