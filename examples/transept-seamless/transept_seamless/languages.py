"""Names of SeamlessM4T's languages: English names, the first of which is shown, and codes of two letters."""

_NAMES = """
afr afrikaans af, amh amharic am, arb arabic ar, asm assamese as, azj azerbaijani az, bel belarusian be,
ben bengali bn, bos bosnian bs, bul bulgarian bg, cat catalan ca, ceb cebuano, ces czech cs, ckb kurdish,
cmn chinese mandarin zh, cmn_Hant cmn_hant zh-hant zh_hant zh-tw zh_tw, cym welsh cy, dan danish da, deu german de,
ell greek el, eng english en, est estonian et, eus basque eu, fin finnish fi, fra french fr, fuv fulfulde ff,
gaz oromo om, gle irish ga, glg galician gl, guj gujarati gu, heb hebrew he, hin hindi hi, hrv croatian hr,
hun hungarian hu, hye armenian hy, ibo igbo ig, ind indonesian id, isl icelandic is, ita italian it, jav javanese jv,
jpn japanese ja, kan kannada kn, kat georgian ka, kaz kazakh kk, khk mongolian mn, khm khmer km, kir kyrgyz ky,
kor korean ko, lao lao lo, lit lithuanian lt, lug ganda lg, luo luo, lvs latvian lv, mai maithili, mal malayalam ml,
mar marathi mr, mkd macedonian mk, mlt maltese mt, mya burmese my, nld dutch nl, nno nynorsk nn,
nob norwegian bokmal nb no, npi nepali ne, nya nyanja ny, ory odia or, pan punjabi pa, pbt pashto ps, pes persian fa,
pol polish pl, por portuguese pt, ron romanian ro, rus russian ru, slk slovak sk, slv slovenian sl, sna shona sn,
snd sindhi sd, som somali so, spa spanish es, srp serbian sr, swe swedish sv, swh swahili sw, tam tamil ta,
tel telugu te, tgk tajik tg, tgl tagalog tl, tha thai th, tur turkish tr, ukr ukrainian uk, urd urdu ur, uzn uzbek uz,
vie vietnamese vi, yor yoruba yo, yue cantonese, zlm malay ms, zul zulu zu
"""

LANGUAGE_NAMES = {
    "traditional chinese": "cmn_Hant",
    **{name: code for entry in _NAMES.split(",") for code, *names in (entry.split(),) for name in names},
}  # such as "german" and "de" to "deu"
