"""Codes and names of languages that no family declares: from ISO 639-2, from countries, and native names."""

from __future__ import annotations

# Code -> other names, for suggestions in errors.
_NAMES = """
ar:ara cs:ces:cze:cz da:dan:dk de:deu:ger:deutsch:deutch el:ell:gre:gr en:eng:gb:us es:spa:español:espanol et:est:ee
fa:fas:per:ir:farsi fi:fin fr:fra:fre:français:francais he:heb:iw:il hi:hin:in hu:hun id:ind it:ita:italiano
ja:jpn:jp:日本語 ko:kor:kr:한국어 ms:may:msa nl:dut:nld:nederlands no:nor:nb:nob pl:pol:polski
pt:por:br:português:portugues ro:ron:rum ru:rus:русский sl:slv:si sv:swe:se:svenska sk:slk:slo tr:tur:türkçe:turkce
uk:ukr:ua:українська vi:vie:vn zh:chi:cmn:cn:tw:zho:中文
"""
LANGUAGES = {name: code for code, *names in (each.split(":") for each in _NAMES.split()) for name in names}
