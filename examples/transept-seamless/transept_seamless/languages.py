"""What users may call the languages of SeamlessM4T: the two letters of ISO 639-1 and English names."""

_NAMES = """
afr af afrikaans, amh am amharic, arb ar arabic, asm as assamese, azj az azerbaijani, bel be belarusian, ben bn bengali,
bos bs bosnian, bul bg bulgarian, cat ca catalan, ceb cebuano, ces cs czech, ckb kurdish, cmn zh chinese mandarin,
cmn_Hant cmn_hant zh-hant zh_hant zh-tw zh_tw, cym cy welsh, dan da danish, deu de german, ell el greek, eng en english,
est et estonian, eus eu basque, fin fi finnish, fra fr french, fuv ff fulfulde, gaz om oromo, gle ga irish,
glg gl galician, guj gu gujarati, heb he hebrew, hin hi hindi, hrv hr croatian, hun hu hungarian, hye hy armenian,
ibo ig igbo, ind id indonesian, isl is icelandic, ita it italian, jav jv javanese, jpn ja japanese, kan kn kannada,
kat ka georgian, kaz kk kazakh, khk mn mongolian, khm km khmer, kir ky kyrgyz, kor ko korean, lao lo, lit lt lithuanian,
lug lg ganda, luo, lvs lv latvian, mai maithili, mal ml malayalam, mar mr marathi, mkd mk macedonian, mlt mt maltese,
mya my burmese, nld nl dutch, nno nn nynorsk, nob nb no norwegian bokmal, npi ne nepali, nya ny nyanja, ory or odia,
pan pa punjabi, pbt ps pashto, pes fa persian, pol pl polish, por pt portuguese, ron ro romanian, rus ru russian,
slk sk slovak, slv sl slovenian, sna sn shona, snd sd sindhi, som so somali, spa es spanish, srp sr serbian,
swe sv swedish, swh sw swahili, tam ta tamil, tel te telugu, tgk tg tajik, tgl tl tagalog, tha th thai, tur tr turkish,
ukr uk ukrainian, urd ur urdu, uzn uz uzbek, vie vi vietnamese, yor yo yoruba, yue cantonese, zlm ms malay, zul zu zulu
"""

LANGUAGE_NAMES = {
    name: code for entry in _NAMES.split(",") for code, *names in (entry.split(),) for name in names
}  # such as "de" and "german" to "deu"
