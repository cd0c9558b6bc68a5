"""Function words by language: words that should not end a line or a subtitle, or that begin a phrase.

`break_costs` reads them. A language without an entry breaks at punctuation, pauses and for balance only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ENGLISH = "en"
LEAST_HITS, LEAST_COMMON = 5, 0.25  # of another language's function words, for a text to be in it


@dataclass(frozen=True)
class FunctionWords:
    """Function words of a language, in lower case.

    articles: stay with the next word. prepositions, conjunctions: begin a phrase. leading: determiners, subject
    pronouns, auxiliaries and negations, which lead to the next word. numerals: parts of numbers in several words.
    titles: stay with the name after them.
    """

    articles: frozenset[str]
    prepositions: frozenset[str]
    conjunctions: frozenset[str]
    leading: frozenset[str]
    numerals: frozenset[str] = frozenset()
    titles: frozenset[str] = frozenset()

    @property
    def common(self) -> frozenset[str]:
        """The words that distinguish this language from others."""
        return self.articles | self.prepositions | self.conjunctions | self.leading


def _words(**classes: str) -> FunctionWords:
    return FunctionWords(**{name: frozenset(words.split()) for name, words in classes.items()})


NONE = _words(articles="", prepositions="", conjunctions="", leading="")
FUNCTION_WORDS = {
    ENGLISH: _words(
        articles="a an the",
        prepositions="about above across after against along among around as at before behind below beneath beside "
        "between beyond by despite down during except for from in inside into like near of off on onto out outside "
        "over past since through throughout to toward towards under until unto up upon with within without",
        conjunctions="and but or nor so yet because although though while when whenever where wherever whereas if "
        "unless that which who whom whose than whether",
        leading="my your his her its our their this these those some any every each such no i you he she it we they "
        "i'm you're he's she's it's we're they're i've we've i'll we'll is are was were am be been being do does did "
        "have has had will would shall should can could may might must not don't doesn't didn't isn't won't can't "
        "very too",
        numerals="one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million "
        "billion trillion percent point",
        titles="mr mr. mrs mrs. ms ms. dr dr. prof. st. sir lady lord miss captain colonel president",
    ),
    "de": _words(
        articles="der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner keines",
        prepositions="ab an am auf aus außer bei beim bis durch für gegen hinter im in ins mit nach neben ohne seit "
        "statt trotz über um unter vom von vor während wegen zu zum zur zwischen",
        conjunctions="und oder aber denn sondern doch weil dass daß ob wenn als bevor nachdem obwohl damit sobald "
        "solange wie wo",
        leading="mein meine meinen dein deine sein seine seinen ihr ihre ihren unser unsere euer dieser diese dieses "
        "diesen jeder jede jedes ich du er sie es wir man bin bist ist sind war waren habe hat haben hatte wird werden "
        "wurde kann können muss müssen soll will nicht sehr",
        numerals="tausend million millionen milliarde milliarden prozent komma",
        titles="herr herrn frau dr. prof.",
    ),
    "fr": _words(
        articles="le la les un une des du au aux",
        prepositions="à après avant avec chez contre dans de depuis derrière dès devant en entre envers hors jusque "
        "malgré par parmi pendant pour sans sauf selon sous sur vers",
        conjunctions="et ou mais donc or ni car que quand lorsque puisque quoique si comme qui dont où",
        leading="mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs ce cet cette ces je tu il elle on "
        "nous vous ils elles suis es est sommes êtes sont était ai as a avons avez ont ne n'est très plus se",
        numerals="deux trois quatre cinq six sept huit neuf dix vingt trente quarante cinquante soixante cent cents "
        "mille million millions milliard milliards pourcent virgule",
        titles="m. mme mlle monsieur madame dr. docteur",
    ),
    "es": _words(
        articles="el la los las un una unos unas lo al del",
        prepositions="a ante bajo con contra de desde durante en entre hacia hasta mediante para por según sin sobre "
        "tras",
        conjunctions="y e o u pero sino ni que porque aunque cuando como donde si mientras pues quien cual",
        leading="mi mis tu tus su sus nuestro nuestra este esta estos estas ese esa esos esas cada yo él ella "
        "nosotros ellos es son era fue está están he ha han había no se me te nos muy",
        numerals="dos tres cuatro cinco seis siete ocho nueve diez veinte treinta cuarenta cincuenta cien ciento mil "
        "millón millones",
        titles="sr. sra. señor señora don doña dr. dra.",
    ),
    "it": _words(
        articles="il lo la i gli le un uno una al allo alla ai agli alle del dello della dei degli delle dal dalla "
        "nel nella nei nelle sul sulla",
        prepositions="a con contro da dentro di dietro dopo durante fra fuori in lungo per presso prima senza sopra "
        "sotto su tra verso",
        conjunctions="e ed o ma però che perché se quando come dove mentre anche né quindi chi cui",
        leading="mio mia tuo tua suo sua nostro nostra loro questo questa questi queste quel quella ogni io tu lui "
        "lei noi voi è sono era ho ha hanno abbiamo non si mi ti ci molto più",
        numerals="due tre quattro cinque sei sette otto nove dieci venti trenta cento mille mila milione milioni",
        titles="sig. signor signora dott. dottor",
    ),
    "pt": _words(
        articles="o a os as um uma uns umas ao aos à às do da dos das no na nos nas pelo pela pelos pelas",
        prepositions="ante após até com contra de desde durante em entre para perante por sem sob sobre trás",
        conjunctions="e ou mas porém que porque embora quando como onde se enquanto pois nem quem",
        leading="meu minha teu tua seu sua nosso nossa este esta esse essa isso cada eu tu ele ela nós eles elas você "
        "vocês é são era foi está estão tem têm não muito mais me te",
        numerals="dois três quatro cinco seis sete oito nove dez vinte trinta cem cento mil milhão milhões",
        titles="sr. sra. senhor senhora dr. dra. dona",
    ),
    "nl": _words(
        articles="de het een t",
        prepositions="aan achter bij binnen boven buiten door in langs met na naar naast om onder op over per rond "
        "sinds te tegen tijdens tot tussen uit van vanaf via voor zonder",
        conjunctions="en of maar want dat omdat als toen wanneer terwijl hoewel zodat dus die waar wie",
        leading="mijn jouw je zijn haar ons onze hun deze dit elke elk ik jij hij zij ze we wij jullie is was waren "
        "ben bent heb heeft hebben had wordt worden kan kunnen moet niet zeer heel",
        numerals="honderd duizend miljoen miljard procent komma",
        titles="meneer mevrouw dr. prof.",
    ),
}
SCRIPTS = (  # of languages without spaces between words; the first one that a text uses decides
    ("ja", re.compile("[\u3041-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("th", re.compile("[\u0e01-\u0e5b]")),
    ("zh", re.compile("[\u3400-\u9fff]")),
)
LEAST_SHARE = 0.1  # of a text's letters, for the text to use a script
HAN = ("zh", "yue")  # languages written with Chinese characters alone


def language_of(texts: Iterable[str], given: str) -> str:
    """Return the language of a transcript's text, which for a translation differs from the given one.

    given: code of the transcript's language; "": unknown. Returns "" for a text in none of the languages above.
    """
    text = " ".join(texts)
    letters = sum(each.isalpha() for each in text)
    for language, script in SCRIPTS:
        if letters and len(script.findall(text)) >= LEAST_SHARE * letters:
            return given if language == "zh" and given in HAN else language
    words = Counter(text.lower().split())
    hits = {name: sum(words[each] for each in known.common) for name, known in FUNCTION_WORDS.items()}
    best = max(hits, key=lambda name: hits[name])
    if given in hits and hits[best] <= 2 * hits[given]:
        return given
    if hits[best] >= (LEAST_HITS if given else 1) and hits[best] > LEAST_COMMON * words.total():
        return best
    return "" if given in (each for each, _ in SCRIPTS) else given
