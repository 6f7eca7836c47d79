"""Words, stems, stop words, finite verbs, and the closed word lists of the rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from snowballstemmer.english_stemmer import EnglishStemmer
from snowballstemmer.porter_stemmer import PorterStemmer

from crp_integrations.language.memo import remembered_of_sentences
from crp_integrations.language.text import fold

# Verbs by their base form; with the rules of `verbs.py` they show where a clause is finite.
VERBS: frozenset[str] = frozenset(
    """accept account achieve acquire act add address adopt affect aim allow announce appear
    apply appoint approve argue arrive ask assess assign assume attract authorise authorize
    avoid ban base become begin believe belong benefit bind block break bring build buy
    calculate call carry cause cease change charge check choose claim close collect combine
    come compare compete complete comply compose comprise compute conclude conduct confirm
    connect consider consist contain continue contract contribute control convert cost count
    cover create cut deal decide decline decrease define delay deliver demand deny depend
    describe deserve design destroy detect determine develop differ direct discover discuss
    disrupt distribute divide double draw drive drop earn elect eliminate emerge employ
    enable end enforce ensure enter establish estimate exceed exclude exist expand expect
    expire explain export express extend face fail fall feature fight file fill find finish
    fit fix focus follow forbid force form found fund gain generate get give go govern grant
    grow guarantee handle happen have head help hire hit hold host identify impact implement
    imply import impose improve include increase indicate inform inspect install integrate
    introduce invest involve issue join jump keep kill know lack last launch lead learn
    leave lie limit link list live locate look lose lower maintain make manage manufacture
    market mean measure meet merge move name need note notify obtain occur offer open
    operate oppose order organise organize own participate pass pay perform permit place
    plan play possess prefer prepare present prevent process produce prohibit promote
    propose protect prove provide publish purchase put raise range rank reach read receive
    recognise recognize recommend record recover reduce refer reflect refuse register reject
    release rely remain remove rent replace report represent require reside resolve respond
    restrict result retain return reveal review rise run save say score secure see seek seem
    sell send separate serve set settle shift show shrink sign sit solve specify spend split
    stand start state stay stop store strengthen study submit succeed suffer suggest supply
    support surge survive take target teach tell tend test thrive total trade train transfer
    travel treat trigger turn undergo understand update use validate value vary verify view
    violate visit vote want warn weigh win work write yield""".split()
)

# Irregular past forms and the verbs that they belong to.
PAST_OF: dict[str, str] = dict(
    pair.split("/")
    for pair in """arose/arise
    became/become began/begin begun/begin bound/bind bought/buy broke/break
    broken/break brought/bring built/build came/come caught/catch chose/choose chosen/choose
    dealt/deal did/do done/do drew/draw drawn/draw drove/drive driven/drive dug/dig fed/feed
    fell/fall fallen/fall felt/feel fled/flee flew/fly flown/fly fought/fight forbade/forbid
    forbidden/forbid forgot/forget forgotten/forget found/find froze/freeze frozen/freeze
    gave/give given/give got/get grew/grow grown/grow heard/hear held/hold hid/hide
    hung/hang kept/keep knew/know known/know laid/lay led/lead left/leave lent/lend
    lit/light lost/lose made/make meant/mean met/meet overcame/overcome paid/pay ran/run
    rang/ring rode/ride rose/rise risen/rise said/say sang/sing sank/sink sat/sit saw/see
    seen/see sent/send shook/shake shot/shoot showed/show shown/show shrank/shrink
    shrunk/shrink slid/slide sold/sell sought/seek spent/spend spoke/speak spoken/speak
    stood/stand stole/steal stolen/steal struck/strike swam/swim swore/swear sworn/swear
    swung/swing taught/teach thought/think threw/throw thrown/throw told/tell took/take
    taken/take tore/tear torn/tear understood/understand undertook/undertake
    undertaken/undertake went/go gone/go withdrew/withdraw withdrawn/withdraw woke/wake
    won/win wore/wear worn/wear wrote/write written/write""".split()
)
_PARTICIPLES = frozenset(
    """begun broken chosen done drawn driven fallen flown forbidden forgotten frozen given grown
    known     risen seen shown shrunk spoken stolen sworn taken thrown torn undertaken gone
    withdrawn worn
    written""".split()
)
# Past forms that make a clause finite by themselves.
IRREGULAR: frozenset[str] = (frozenset(PAST_OF) - _PARTICIPLES) | frozenset(
    "cost cut hit hurt let put quit read set shut split spread had lay".split()
)

AUXILIARIES: frozenset[str] = frozenset(
    """is are was were am be been has have had do does did will would can could may might must
    shall should cannot ain't isn't aren't wasn't weren't hasn't haven't hadn't doesn't
    don't didn't won't wouldn't can't couldn't mustn't shouldn't mightn't needn't it's
    that's there's he's she's they're we're you're i'm they've we've i've you've they'll
    we'll""".split()
)

DETERMINERS: frozenset[str] = frozenset(
    """a an the this that these those its his her their our my your each every some any no all both
    another either neither such""".split()
)

PREPOSITIONS: frozenset[str] = frozenset(
    """of in on at by for from with to into onto over under about against between among during
    through across per via within without than as like toward towards upon""".split()
)

PRONOUNS: frozenset[str] = frozenset(
    "i you he she it we they this that these those who which there one someone everyone".split()
)

# Words that open sentences with a capital and are no names.
ORDINARY: frozenset[str] = frozenset(
    """according although additionally after all almost alternatively also among analysis
    another any anyone article authors average because before besides better both business
    businesses but candidates care cases certain changes check children choose cities
    citizens click clinical common companies company compared competition compliance
    consequently consider consumers context conversely cost costs countries create critics
    currently customers data day days death debt demand despite details developers
    developing documents due each early economic education either employees energy engineers
    errors even eventually every everyone everything evidence example examples experts facts
    families farmers features few final finally financial first firms five following food
    for former four frequently full fully further furthermore future general generally given
    global good government governments great half health hence here high higher historically
    history hospitals how however humans if imagine important in income increased indeed
    industry inflation information initially instead interest investors issues it its job
    jobs just key lack large last late later law laws learning leaders less life like
    likewise local long loss losses low lower major making man management many market
    markets may maybe mean meanwhile measures medical members men methods military millions
    models modern money more moreover most much national natural nearly neither never
    nevertheless new next nine nobody none nonetheless not note nothing notably now
    obviously officials often oil old once one only open operations options order orders
    organisations organizations originally other others otherwise our overall owners parents
    part participants parties partly patients people perhaps personal plans please points
    police policy policies political poor population possible power previous previously
    price prices private production products profit profits programs projects public quality
    questions quite rain rates rather real recent recently record records reports research
    researchers residents results revenue revenues risk risks rules sadly safety sales
    scientists second section security several she shares short should similar similarly
    simply since six small so social software some someone something sometimes soon source
    sources special specifically staff state states still stock stocks students studies
    study subsequently such summary support supposedly sure surprisingly systems tax taxes
    teachers team teams ten that the their then there therefore these they things third this
    those though thousands three thus time times today together tomorrow tools total trade
    traffic training two typically ultimately under unemployment unfortunately unlike until
    up upon users usually various very victims visitors voters wages war water we weather
    what when where whether which while who why will with within without witnesses women
    work workers writing yes yesterday yet you young your answer answers text reason reasons
    regardless response responses conclusion introduction background overview warning
    caution tip step steps input output approximately nearly roughly about around over model
    applications application system service services process access payment payments
    delivery shipping growth turnover margins earnings exports imports output spending
    investment funding membership attendance enrolment treatment surgery symptoms
    vaccination doctors nurses drivers passengers tourists trains buses roads buildings
    houses schools universities libraries museums parks rivers lakes mountains forests
    animals plants birds fish dogs cats trees flowers crops temperatures emissions pollution
    deforestation erosion flooding earthquakes storms fires responsibility regulation
    regulations controllers processors providers operators manufacturers suppliers vendors
    retailers banks lenders borrowers creditors shareholders directors executives managers
    analysts economists applicants recipients beneficiaries taxpayers landlords tenants
    buyers sellers customer reviewer user patient member visitor guest employee consumer
    reviewers guests""".split()
)

HONORIFICS: frozenset[str] = frozenset(
    """mr mrs ms miss dr prof professor sir dame lord lady rev hon sen gov capt col gen
    lt sgt""".split()
)

# Verbs that open an instruction.
IMPERATIVES: frozenset[str] = frozenset(
    """add adjust apply attach back boil build call change check choose clean click clone close
    combine compile complete configure confirm connect contact copy create cut delete deploy
    disable disconnect double-click download drag drain edit enable enter execute export
    fill follow go heat hold import insert install keep launch log make mix move navigate
    open paste place plug pour press print pull push put read reboot remove rename repeat
    replace reset restart return right-click rinse run save scroll select send set shut sign
    specify start stir stop submit switch tap test tick toggle try turn type uninstall
    unplug update upgrade upload use verify visit wait wash write divide twist wrap swap brush
    gather split secure continue begin fold tie braid slice chop peel season sprinkle serve preheat
    whisk roll knead spread cover loosen tighten lift lay dry soak trim sew glue consult ensure
    avoid make""".split()
)


STOP_WORDS: frozenset[str] = frozenset(
    """a about above after again against all also am an and any are aren't as at be because been
    before being below between both but by can can't cannot could couldn't did didn't do does
    doesn't doing don't down during each few for from further had hadn't has hasn't have haven't
    having he her here hers herself him himself his how i if in into is isn't it its it's itself
    just let me more most my myself no nor not now of off on once only or other our ours ourselves
    out over own same shall shan't she should shouldn't so some such than that that's the their
    theirs them themselves then there these they this those through to too under until up upon very
    was wasn't we were weren't what when where which while who whom why will with within without
    won't would wouldn't you your yours yourself yourselves may might must us via per s t""".split()
)

_WORD = re.compile(r"[^\W_]+(?:['.\-&][^\W_]+)*")
# A named tuple's own constructor is a function of Python, and halves the speed of reading a text.
_new = tuple.__new__


class TextWord(NamedTuple):
    """A word of a text.

    Attributes:
        text: as written.
        start, end: character offsets in the text given.
        lower: folded and in lower case, for comparing.
    """

    text: str
    start: int
    end: int
    lower: str


def words(text: str) -> list[TextWord]:
    """The words of a text in order; hyphens, apostrophes and inner points stay within a word.

    >>> [word.text for word in words("It's U.S. state-of-the-art.")]
    ["It's", 'U.S', 'state-of-the-art']
    """
    return list(_words(text))


@remembered_of_sentences
def _words(text: str) -> tuple[TextWord, ...]:
    folded = fold(text)
    body = folded.text
    places = [match.span() for match in _WORD.finditer(body)]
    if folded.offsets is None:
        return tuple([_new(TextWord, (text[a:b], a, b, body[a:b].casefold())) for a, b in places])
    tokens = []
    for first, last in places:
        start, end = folded.start(first), folded.end(last)
        tokens.append(TextWord(text[start:end], start, end, body[first:last].casefold()))
    return tuple(tokens)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The English stem of a word, folded and in lower case.

    >>> stem("Applies"), stem("applied")
    ('appli', 'appli')
    """
    lower = fold(word).text.casefold()
    if lower.endswith("'s"):
        lower = lower[:-2]
    # The library's own choice would be PyStemmer where that is installed, which stems some words
    # otherwise; and an instance keeps the word it works on, so threads cannot share one.
    return str(EnglishStemmer().stemWord(lower))


def content_stems(text: str) -> list[str]:
    """Stems of the words that carry content, in order, repeats kept; hyphened words apart.

    >>> content_stems("The policy applies to state-owned firms")
    ['polici', 'appli', 'state', 'own', 'firm']
    """
    lowered = (match.group().casefold() for match in _PART.finditer(fold(text).text))
    return [stem(lower) for lower in lowered if lower not in STOP_WORDS]


class ContentWord(NamedTuple):
    """A stem and where it stands."""

    stem: str
    start: int
    end: int


_PART = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*")


@remembered_of_sentences
def content_words(text: str) -> tuple[ContentWord, ...]:
    """The content stems of a text with their character offsets."""
    folded = fold(text)
    body = folded.text
    occurrences = [
        (lower, start, end)
        for start, end in [match.span() for match in _PART.finditer(body)]
        if (lower := body[start:end].casefold()) not in STOP_WORDS
    ]
    if folded.offsets is None:
        return tuple([_new(ContentWord, (stem(lower), a, b)) for lower, a, b in occurrences])
    return tuple([ContentWord(stem(w), folded.start(a), folded.end(b)) for w, a, b in occurrences])


_TOKEN = re.compile(r"[^\W_]+")
# Bytes of the shortest and the longest word that FTS5 stems; others stay as they are.
_STEMMED = range(3, 65)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # The library's own choice would be PyStemmer where that is installed, which stems some words
    # otherwise; and an instance keeps the word it works on, so threads cannot share one.
    return str(PorterStemmer().stemWord(word)) if len(word.encode()) in _STEMMED else word


def stems_of(text: str) -> tuple[str, ...]:
    """Stems of a text's words, lower case and without diacritics, in order.

    >>> stems_of("Re-ranking cafés is")
    ('re', 'rank', 'cafe', 'is')
    """
    bare = text
    if not text.isascii():
        parts = unicodedata.normalize("NFD", text)
        bare = "".join(c for c in parts if not unicodedata.combining(c))
        bare = unicodedata.normalize("NFC", bare)
    return tuple(_stem(word) for word in _TOKEN.findall(bare.lower()))


_NOT_PAST = frozenset("need indeed speed seed feed breed exceed hundred red bed shed based".split())
_ARTICLES = DETERMINERS - PRONOUNS
_BETWEEN = PREPOSITIONS | DETERMINERS | {"and", "or", "also", "then", "not", "never"}


def finite_verb(found: Sequence[TextWord], first: int = 0) -> int | None:
    """Place of the first finite verb among the words, None when there is none."""
    for place in range(first, len(found)):
        if is_finite(found, place):
            return place
    return None


def is_finite(found: Sequence[TextWord], place: int) -> bool:
    """Whether the word at a place reads as a finite verb where it stands."""
    lower = found[place].lower
    before = found[place - 1].lower if place else ""
    if lower in AUXILIARIES or lower.endswith("n't"):
        return lower not in ("be", "been")
    if before in _ARTICLES or before in PREPOSITIONS:
        return False
    if lower in IRREGULAR:
        return True
    if found[place].text[:1].isupper() and place:
        return False
    if lower.endswith("ed") and len(lower) > 4 and lower not in _NOT_PAST:
        return True
    if _third_person(lower):
        return True
    return lower in VERBS and (
        before in ("i", "you", "we", "they", "who", "which", "that")
        or (before.endswith("s") and before not in _BETWEEN and not before.endswith(("ss", "'s")))
    )


def _third_person(lower: str) -> bool:
    if not lower.endswith("s") or len(lower) < 4:
        return False
    if lower[:-1] in VERBS:
        return True
    if lower.endswith("es") and lower[:-2] in VERBS:
        return True
    return lower.endswith("ies") and lower[:-3] + "y" in VERBS
