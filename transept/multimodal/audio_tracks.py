"""Select an audio track of a container by its number or its language.

`media` calls `track_of`. If no track is named and the default one is silent, `media` looks for the loudest.
"""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from transept.errors import MediaError, ParameterError
from transept.option_names import near_value

# ISO 639-1 -> 639-2, whose codes containers write. Where 639-2 has two codes, the older (bibliographic) is second.
CODES = """
aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel bg:bul bi:bis bm:bam
bn:ben bo:bod:tib br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces:cze cu:chu cv:chv cy:cym:wel da:dan de:deu:ger
dv:div dz:dzo ee:ewe el:ell:gre en:eng eo:epo es:spa et:est eu:eus:baq fa:fas:per ff:ful fi:fin fj:fij fo:fao fr:fra:fre
fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:hye:arm hz:her
ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido is:isl:ice it:ita iu:iku ja:jpn jv:jav jw:jav ka:kat:geo kg:kon ki:kik
kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir la:lat lb:ltz lg:lug li:lim ln:lin
lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mri:mao mk:mkd:mac ml:mal mn:mon mr:mar ms:msa:may mt:mlt my:mya:bur na:nau
nb:nob nd:nde ne:nep ng:ndo nl:nld:dut nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:oji om:orm or:ori os:oss pa:pan
pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron:rum ru:rus rw:kin sa:san sc:srd sd:snd se:sme sg:sag si:sin
sk:slk:slo sl:slv sm:smo sn:sna so:som sq:sqi:alb sr:srp ss:ssw st:sot su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha
ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol
wa:wln wo:wol xh:xho yi:yid yo:yor za:zha zh:zho:chi zu:zul
"""
NAMES = """
aa:afar ab:abkhazian ae:avestan af:afrikaans ak:akan am:amharic an:aragonese ar:arabic as:assamese av:avaric ay:aymara
az:azerbaijani ba:bashkir be:belarusian bg:bulgarian bi:bislama bm:bambara bn:bengali bo:tibetan br:breton bs:bosnian
ca:catalan:valencian ce:chechen ch:chamorro co:corsican cr:cree cs:czech cu:church_slavic cv:chuvash cy:welsh da:danish
de:german dv:dhivehi:maldivian dz:dzongkha ee:ewe el:greek en:english eo:esperanto es:spanish:castilian et:estonian
eu:basque fa:persian:farsi ff:fulah fi:finnish fj:fijian fo:faroese fr:french fy:western_frisian:frisian ga:irish
gd:scottish_gaelic:gaelic gl:galician gn:guarani gu:gujarati gv:manx ha:hausa haw:hawaiian he:hebrew hi:hindi
ho:hiri_motu hr:croatian ht:haitian_creole:haitian hu:hungarian hy:armenian hz:herero ia:interlingua id:indonesian
ie:interlingue ig:igbo ii:sichuan_yi ik:inupiaq io:ido is:icelandic it:italian iu:inuktitut ja:japanese jv:javanese
ka:georgian kg:kongo ki:kikuyu kj:kuanyama kk:kazakh kl:kalaallisut:greenlandic km:khmer kn:kannada ko:korean kr:kanuri
ks:kashmiri ku:kurdish kv:komi kw:cornish ky:kyrgyz la:latin lb:luxembourgish lg:ganda li:limburgish ln:lingala lo:lao
lt:lithuanian lu:luba_katanga lv:latvian mg:malagasy mh:marshallese mi:maori mk:macedonian ml:malayalam mn:mongolian
mr:marathi ms:malay mt:maltese my:burmese:myanmar na:nauru nb:norwegian_bokmal:bokmal nd:north_ndebele ne:nepali
ng:ndonga nl:dutch:flemish nn:norwegian_nynorsk:nynorsk no:norwegian nr:south_ndebele nv:navajo ny:nyanja:chichewa
oc:occitan oj:ojibwa om:oromo or:oriya:odia os:ossetian pa:punjabi:panjabi pi:pali pl:polish ps:pashto:pushto
pt:portuguese qu:quechua rm:romansh rn:rundi ro:romanian:moldavian:moldovan ru:russian rw:kinyarwanda sa:sanskrit
sc:sardinian sd:sindhi se:northern_sami sg:sango si:sinhala:sinhalese sk:slovak sl:slovenian:slovene sm:samoan sn:shona
so:somali sq:albanian sr:serbian ss:swati st:southern_sotho:sotho su:sundanese sv:swedish sw:swahili ta:tamil te:telugu
tg:tajik th:thai ti:tigrinya tk:turkmen tl:tagalog:filipino tn:tswana to:tonga tr:turkish ts:tsonga tt:tatar tw:twi
ty:tahitian ug:uyghur uk:ukrainian ur:urdu uz:uzbek ve:venda vi:vietnamese vo:volapuk wa:walloon wo:wolof xh:xhosa
yi:yiddish yo:yoruba yue:cantonese za:zhuang zh:chinese:mandarin zu:zulu
"""


def _alike() -> dict[str, str]:
    """Every code, and every name with underscores for spaces -> one code of the language."""
    by_code = {code: codes[1] for codes in (each.split(":") for each in CODES.split()) for code in codes}
    named = (each.split(":") for each in NAMES.split())
    return by_code | {name: by_code.get(code, code) for code, *names in named for name in names}


ALIKE = _alike()
LONGEST_CODE = 3  # letters


def checked_track(track: Any) -> int | str | None:
    """Return a track's number, from 0, or a language, by code or name. Raises ParameterError for anything else."""
    if track is None:
        return None
    text = "" if isinstance(track, bool) or not isinstance(track, str | Integral) else str(track).strip().lower()
    if re.fullmatch(r"[0-9]{1,5}", text):
        return int(text)
    if re.fullmatch(r"[a-z]{2,3}([-_][a-z0-9]{1,8})*", text) or _as_name(text) in ALIKE:  # any code of ISO 639
        return text
    near = near_value(_as_name(text), (name for name in ALIKE if len(name) > LONGEST_CODE))
    raise ParameterError(
        "{audio_track} must be the number of a track, from 0 up, or its language such as eng or English, not "
        f"{{audio_track!}}{near}",
        param="audio_track",
        value=track,
    )


def only_track(track: int | str | None, name: str) -> None:
    """Raise MediaError for a track number above 0. Called for a recording with one track, which has no language."""
    if isinstance(track, int) and track > 0:
        message = f"{name} has no track {track}: it has one audio track, so leave {{audio_track}} out, or use 0"
        raise MediaError(message, param="audio_track", value=track)


def track_of(container: Any, track: int | str | None, name: str) -> Any:
    """Return the requested stream of an open container; None if FFmpeg decodes none.

    track: a number, a language, or None for the one that FFmpeg deems best. A lone track without a language
    matches any language. Raises MediaError for a track that does not exist or that FFmpeg does not decode.
    """
    if track is None:
        best = container.streams.best("audio")
        return None if best is None or best.codec_context is None else best
    streams = container.streams.audio
    if not streams:
        return None
    if isinstance(track, int):
        found = streams[track] if track < len(streams) else None
    else:
        wanted = _language(track)
        found = next((each for each in streams if _language(language_of(each)) == wanted), None)
        if len(streams) == 1 and not language_of(streams[0]):
            found = streams[0]
    if found is None:
        what = f"no track {track}" if isinstance(track, int) else f'no track in "{track}"'
        known = ", ".join(label(each, number) for number, each in enumerate(streams))
        message = f"{name} has {what}: its audio tracks are {known}. Choose one of them as {{audio_track}}"
        raise MediaError(message, param="audio_track", value=track)
    if found.codec_context is None:
        message = f"{name} has a track {track} that FFmpeg does not decode: choose another {{audio_track}}"
        raise MediaError(message, param="audio_track", value=track)
    return found


def language_of(stream: Any) -> str:
    """Return the language code that a container has for a track; empty if it has none."""
    code = str(stream.metadata.get("language", "")).lower()
    return "" if code == "und" else code


def label(stream: Any, number: int) -> str:
    """Return the name of a track in messages."""
    return f'{number} ("{language_of(stream)}")' if language_of(stream) else str(number)


def _language(code: str) -> str:
    """Return one code for all codes and names of a language: ``"en"``, ``"eng"``, ``"en-GB"`` and ``"English"``."""
    code = code.strip().lower()
    primary = re.split("[-_]", code)[0]
    return ALIKE.get(_as_name(code)) or ALIKE.get(primary, primary)


def _as_name(language: str) -> str:
    return re.sub(r"[\s-]+", "_", language)
