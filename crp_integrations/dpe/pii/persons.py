"""Names of persons, by titles, introductions, lists of given names and the form of surnames."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.pii.spans import PersonalSpan, span
from crp_integrations.language.words import AUXILIARIES, ORDINARY, PRONOUNS, STOP_WORDS, VERBS

GIVEN: Final[frozenset[str]] = frozenset(
    """
aaron abby abdul abdullah abel abigail abraham ada adah adam adela adele adrian adriana agata
agnes agnieszka ahmad ahmed aidan aileen aino aisha akira alan alana albert alberto aldo alec
alejandra alejandro aleksander aleksandr aleksandra alena alessandra alessandro alessia alex
alexander alexandra alexandre alexei alexis alfonso alfred alfredo ali alice alicia alina alison
alistair allan allison alma alojz alvaro alvin alyssa amalia amanda amara amber amelia amelie
amina amir amit amy ana anastasia anders andre andrea andreas andrei andrej andres andrew andrey
andrzej andy anette angela angelica angelina angelo anita anja ann anna annabel annalisa anne
annelise annette annie annika anthony antoine anton antonella antoni antonia antonin antonio
antonios anya apostolos archie ariana arianna ariel arjun arkadiusz arlene armand armando arnaud
arne arnold art artem arthur artur arturo arvid asher ashley ashok asia astrid athanasios atsushi
audrey august auguste augusto aurelia aurora austin ava avery ayesha ayla babette barbara barbora
bart bartosz beata beate beatrice beatriz becky belinda bella ben benedetta benedict benedikt
benjamin benoit bent bernadette bernard bernardo bernd bernhard bernice bert berta bertha beth
bethany betsy bettina betty beverly bianca bilal bill billy bjarne bjorn blaise blanca blanche bo
bob bobby bogdan bonnie boris bozena brad bradley brandon brenda brendan brent brett brian bridget
brigitte britta brittany bruce bruno bryan byron caitlin caleb calvin cameron camila camilla
camille candice carin carl carla carlo carlos carly carmen carol carole carolina caroline carolyn
carrie carsten carter casey caspar cassandra catalina catarina caterina catherine cathy cecilia
cecilie cedric celeste celia celina celine cesar cettina chad chandra chantal charlene charles
charlie charlotte chelsea chen cheryl chiara chloe chris christa christian christiane christina
christine christoph christophe christopher cindy claire clara clare clarence clarissa claude
claudia claudio clemens clement clifford clint clive clyde cody colette colin colleen concetta
connie connor conor conrad constance constantin constantine cora corey corinna corinne cornelia
cornelius cory courtney craig cristian cristiana cristiano cristina curtis cynthia cyril daisuke
dale damian damien damir dan dana daniel daniela daniele daniella danielle danny dante daphne
daria dario darius darlene darren dave david davide dawid dean deanna debbie deborah debra declan
deepak deirdre delia della demetrius denis denise dennis derek desmond diana diane diego dieter
dietrich dilip dimitri dimitrios dina dinesh dirk dmitri dmitry dolores domenico dominic dominik
dominika dominique don donald donna dora doreen doris dorota dorothea dorothy dorte doug douglas
drew duncan dustin dwayne dwight dylan dymphna earl ebba ebony eckhard ed eddie edgar edgardo
edith edmund edna edoardo eduard eduardo edvard edward edwin eero egon eileen einar eino ekaterina
elaine eleanor elena eleni eleonora eli elias elijah elin elina elisa elisabeth elise elisha eliza
elizabeth ella elle ellen ellie elliot elliott elsa elsie elton elvira elvis emanuel emanuela
emanuele emelie emil emilia emiliano emilie emilio emily emina emma emmanuel enid enrico enrique
enzo eric erica erich erik erika erin ernest ernesto ernst erwin esteban estela estelle esther
ethan etienne eugene eugenia eugenio eunice eva evan evelina evelyn evgeny ewa ezra fabian fabien
fabio fabiola fabrice fabrizio fanny farah fatima federica federico felicia felicity felipe felix
ferdinand ferenc fernanda fernando filip filippo finn fiona flavia flavio flora florian floyd
frances francesca francesco francine francis francisca francisco franco francois francoise frank
frankie franz franziska fred freddie frederic frederick frederik fredrik freja freya frida frieda
friedrich fritz gabor gabriel gabriela gabriele gabriella gabrielle gail gareth garrett gary
gaston gavin geert gemma gene genevieve geoff geoffrey george georges georgia georgina georgios
gerald geraldine gerard gerardo gerda gerhard gianluca gianni gilbert gilda giles gilles gillian
gina ginger giorgia giorgio giovanna giovanni gisela giulia giuliana giulio giuseppe giuseppina
gladys glen glenda glenn gloria goran gordon graham grant grazia greg gregor gregorio gregory
greta gretchen guido guillaume guillermo gunnar gunter gunther gus gustaf gustav gustavo guy gwen
gwendolyn hakan hana hanna hannah hannes hannu hans harald harold harriet harris harry haruka
haruto harvey hasan hassan hazel heath hector heidi heike heiko heinrich heinz helen helena helene
helga helge helmut hendrik henri henrietta henrik henrike henry herbert heribert herman hermann
hilary hilda hildegard hiro hirohito hiroshi holger holly horace horst howard hubert hugh hugo
humberto hussein ian ibrahim ida ignacio igor ilaria ilka ilona ilse imogen imran ina ines inga
inge ingeborg inger ingo ingrid inka ioana ioannis ira irena irene irina iris irma irving isaac
isabel isabella isabelle isaiah isidora isla ismael ismail istvan ivan ivana ivar ivo ivy izabela
jaakko jaana jacek jack jackie jackson jacob jacqueline jacques jade jaime jake jakob jakub
jalmari jamal james jamie jan jana jane janet janice janina janine janos jared jarmila jaroslav
jasmin jasmine jason jasper javier jay jayden jean jeanette jeanne jeannette jeff jeffery jeffrey
jelena jenna jennifer jenny jens jeremiah jeremy jerome jerry jesper jesse jessica jessie jesus
jill jim jimmy jiri jitka joachim joan joana joann joanna joanne joao joaquin jochen jodie joe
joel joelle joerg johan johann johanna johannes john johnny jon jonah jonas jonathan joni jordi
jorge jorgen jose josef josefa josefina joseph josephine josh joshua josiah joy joyce jozef juan
juana juanita judith judy juha juhani jukka jules julia julian juliana julianne julie julien
juliet juliette julio julius june jurgen justin justina justine justyna jürgen kai kaja kamil
kamila kara karen kari karim karin karina karl karla karol karolina karoline kasper katarina
katarzyna katarína kate katerina katharina katherine kathleen kathryn kathy katia katie katja
katrin katrina katya kay kazuko kazuo keisuke keith kelly kelsey ken kendra kenji kenneth kenny
kent kerry kevin khadija khalid kiara kieran kim kimberly kirill kirk kirsten kirsty kjell klara
klaus knut konrad konstantin krista kristen kristian kristina kristine kristofer kristoffer
krystyna krzysztof kumar kurt kyle kylie ladislav laila lamar lance lara larisa larry lars lasse
laszlo latoya laura lauren laurence laurent laurie lawrence lea leah leanne lee leif leila lena
lenka lennart leo leon leona leonard leonardo leonie leonor leopold leroy lesley leslie leszek
leticia lewis li liam libor lidia liisa lilian liliana lilly lily linda lindsay lindsey linnea
linus lionel lisa lisbeth lise liv livia liz liza ljubica logan lois lola lora loredana lorena
lorenzo loretta lori lorraine lothar lotte lou louis louisa louise luana luc luca lucas lucia
luciana luciano lucie lucien lucille lucinda lucio lucy ludmila ludwig luigi luis luisa luiz luka
lukas lukasz luke luna lydia lyle lynn mabel maciej mackenzie madeleine madeline madison mads
magda magdalena maggie magnus maher mahmoud maja malcolm malgorzata malik malin mandy manfred
manoj manuel manuela mara marc marcel marcela marcella marcelo marcia marcin marco marcos marcus
marek margaret margarita margit margot margrethe marguerite mari maria mariah marian mariana
marianne marie mariela marija marijke marilyn marina mario marion marisa marius marjorie markku
marko markus marlene marta marten martha martin martina martine marty marvin mary maryam mason
massimo mateo mateusz mathias mathieu mathilde matias matilda matt matteo matthew matthias
matthieu matti maud maureen maurice mauricio maurizio mauro max maxim maxime maximilian maxine
maya megan mehdi mehmet mei melanie melinda melissa melody mercedes meredith mette mia micah
michael michaela michal michel michele michelle miguel mihai mika mikael mike mikhail mikkel
miklos mila milan mildred milena miles milica milos miloslav milton mimi mina minna miranda
mireille miriam mirjam mirko miroslav misty mitchell moa mohamed mohammad mohammed moira molly
mona monica monika monique morgan moritz morris morten moses muhammad muriel mustafa myra myriam
myrtle nadezhda nadia nadine nadja nancy naoko naomi narayan natalia natalie natasha nathalie
nathan nathaniel neil nele nelly nelson nestor neville niamh nicholas nick nicky nicola nicolai
nicolas nicole nicoletta niels nigel niina niklas nikola nikolai nikolaj nikolaos nikolas nikolay
nils nina ning nino nisha noah noel noelia noemi nora norbert noreen norma norman nuno octavia
odette olaf olav ole oleg olena olga oliver olivia olivier olle omar ondrej oona ophelia oriana
orlando orville oscar oskar osvaldo oswald otis ottavia otto owen pablo padraig paige paloma
pamela paola paolo pascal pat patrice patricia patricio patrick patrik patrizia patrycja patsy
patti patty paul paula paulette paulina pauline paulo pavel pawel pearl pedro peggy penelope penny
per percy pernille perry petar pete peter petra petri petros petter phil philip philipp philippa
philippe phillip phoebe phyllis pia pier piero pierre pietro pilar piotr polly porfirio priscilla
priya qasim quentin quinn rachael rachel rafael rafal raffaele rahul raimund rainer raj rajesh
ralph ramesh ramon ramona randall randolph randy raoul raphael raquel rasmus raul ravi ray raymond
rebecca rebekah reggie regina reginald reinhard reinhold remy renata renate renato rene renee
reuben rex reynaldo rhoda rhonda ricardo riccardo richard rick ricky rita robbie robert roberta
roberto robin robyn rocco rochelle rod roderick rodney rodolfo rodrigo roger roland rolf romain
roman ron ronald ronan ronja ronnie rosa rosalie rosalind rosanna rosaria rosario rosemary rosie
ross rowan roxanne roy ruben ruby rudolf rudolph rudy rufus rui rupert russell ruth ryan sabina
sabine sabrina sadie said sakura sally salvador salvatore sam samantha samir sampo samuel samuele
sandra sandro sandy sanjay sanna santiago santino sara sarah sari sascha sasha saskia satoshi saul
savannah scott sean sebastian sebastiano selena selina selma serena serge sergei sergey sergio
seth shane shannon sharon shaun shawn sheila shelby sheldon shelley sheri sherry shirley shiro
shreya sibylle sid sidney siegfried sienna sigrid silas silke silvia silvio simon simona simone
simonetta sina sinead siobhan sissel sixten slavko slobodan sofia sofie solange solomon solveig
sonia sonja sonya sophia sophie soren spencer srinivas stacey stacy stan stanislav stanislaw
stanley stefan stefania stefanie stefano steffen stelios stella stephan stephane stephanie stephen
sterling steve steven stewart stig stuart sue suresh susan susana susanna susanne susie suzanne
svein sven svenja svetlana sylvain sylvester sylvia sylvie szymon tadeusz takashi takeshi tamara
tamas tammy tania tanja tanya tara tarja tatiana tatjana taylor ted teemu terence teresa terhi
terje terrence terri terry tess tessa thea thelma theo theodor theodora theodore theresa therese
thibault thierry thomas thora thorsten tiago tiffany tilda tim timo timothy tina tobias toby todd
tom tomas tomasz tommaso tommy toni tony tor torben tore torsten tove tracey tracy travis trent
trevor tricia trine trisha tristan troy trude tuomas tyler tyrone ugo ulf ulla ulrich ulrika
ulrike umberto una ursula uwe vaclav valentin valentina valentino valeria valerie valerio vanessa
vasily vaughn vera verena vernon veronica veronika veronique vesna vicki vicky victor victoria
vida vidar viggo vijay viktor viktoria vilhelm vilma vince vincent vincenzo viola violet virgil
virginia virginie vishal vito vittoria vittorio vivian viviana vivien vivienne vlad vladimir
vladislav volker wade wallace walter wanda warren wayne wei wendell wendy werner wesley wilbur
wilfred wilhelm wilhelmina willem william willie wilma winifred winston wojciech wolfgang xavier
xenia ximena yan yana yannick yasmin yasmine yasuko yoko yolanda yosef yoshiko youssef yuki yuri
yusuf yvette yvonne zachary zara zdenek zeynep zoe zofia zoltan zuzana
""".split()
)

ALSO_WORDS: Final[frozenset[str]] = frozenset(
    """
ali alma amber angel april archer art asia august aurora austin autumn ben bill bo brook carmen
carol carter chad chandra chase chelsea chris christian clay cliff cora crystal daisy dakota dale
dallas dana dawn dean della don earl ed faith florence florida frank gene georgia ginger grace
grant guy hazel heath holly hope houston hunter iris israel ivy jack jackson jade jasmine jean
jersey jesus jordan jose joy june kay kelly kent kim lance lee lily lincoln logan london lou lynn
mark mason max may melody mercedes milan miles misty morgan moses myrtle norman olive orlando
oscar page paige paris pat patience pearl penny per perry phoenix pierre ray rex rich rob robin
rod roman rose ross rowan ruby rufus said sally sam san sandy savannah scarlet scott sherry sidney
sierra sky spencer stan sterling stewart sue summer sydney taylor ted terry todd tor trent troy
tyler una van vernon victoria violet virginia wade wallace warren wayne wesley will winston
""".split()
)
"""Given names that are other words too; alone they count with a sign of a person only."""


NAME: Final = "person@1"
_WORD: Final = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_JOINED: Final = re.compile(r"\.? {1,2}\Z")
_PARTICLES: Final = frozenset(
    "de da di du del della dos das der den van von zu la le el al bin ibn ben ter ten af av y e".split()
)
_TITLES: Final = frozenset(
    """mr mrs ms miss mx dr doctor prof professor sir dame lady lord madam master rev reverend father
    sister brother hon judge justice senator congressman congresswoman president chancellor captain
    capt colonel col major sergeant sgt lieutenant lt general gen officer detective nurse herr frau
    fräulein monsieur madame mme mlle mademoiselle señor señora señorita sr sra srta signor signora
    signorina dott pan pani uncle aunt auntie grandma grandpa king queen prince princess pope saint
    attorney dr-ing ing""".split()
)
# "General Motors", "Major League", "Saint Petersburg": titles that as often are something else.
_WEAK_TITLES: Final = frozenset(
    """general major master president judge justice father sister brother nurse king queen prince
    princess saint officer attorney lady lord sr pan captain doctor professor miss hon col gen ing
    """.split()
)
_NO_PERSON: Final = frozenset(
    """inc ltd llc llp gmbh ag corp corporation co company companies plc sa bv nv oy ab group holdings
    bank university college school institute institution academy foundation association society
    council committee commission ministry department agency bureau office court parliament congress
    senate party union league club team united orchestra band choir museum gallery theatre theater
    library hospital clinic center centre church cathedral temple mosque abbey street st avenue ave
    road rd lane boulevard drive square place park gardens river lake lakes mountain mountains mount
    hills valley island islands bay beach coast ocean sea county city town village province region
    state states republic kingdom district airport station bridge tower castle palace stadium arena
    prize award medal cup trophy festival championship open tournament games act law bill treaty
    agreement convention protocol war battle army navy news times post journal magazine press radio
    television channel network studios records entertainment pictures films airlines airways motors
    industries systems solutions technologies software services partners associates consulting
    international global national royal federal hotel restaurant cafe café bar inn mall market store
    shop day week year street's hospital's theorem algorithm effect syndrome disease test method
    equation model scale project program programme fund trust capital insurance energy oil gas
    """.split()
)
_PLACE_LEADS: Final = frozenset(
    """san santa santo saint st los las new old north south east west northern southern eastern western
    central upper lower great little mount lake fort port cape el la le les the rio puerto bad""".split()
)
_STREETS_BEFORE: Final = re.compile(r"\d{1,5} \Z")
_CUE: Final = re.compile(
    r"(?:\b(?:my|his|her|their|your|our|whose|the|first|last|full|family|maiden|sur|middle|legal"
    r"|customer|client|patient|employee|user|account)[ -]{0,2}?(?:holder'?s? )?(?:name|surname|names)"
    r"(?: is| was|'s|:| on the account(?: is|:)?)?[\s:?\"'-]{1,4}"
    r"|\bname(?:d)? (?:is|him|her|them|it) |\bnamed |\bname ?[:=] ?[\"']?|\bi am |\bi'm |\bthis is |\bit's "
    r"|\bcalled |\bdear |\bhi,? |\bhello,? |\bhey,? |\bmeet |\bregards,?\s{1,3}|\bsincerely,?\s{1,3}"
    r"|\bcheers,?\s{1,3}|\bthanks,?\s{1,3}|\bsigned:? |\bsignature:? |\bsigned by "
    r"|\bto the attention of |\battn:? |\b(?:wife|husband|son|daughter|mother|father|brother|sister"
    r"|friend|colleague|boss|manager|uncle|aunt|cousin|neighbo[u]?r|girlfriend|boyfriend|partner"
    r"|employee|patient|customer|client|student|teacher|nurse|doctor|actor|actress|author|singer"
    r"|director),? )\Z",
    re.IGNORECASE,
)
_STRONG_CUE: Final = re.compile(
    r"name|signed|signature|regards|sincerely|attn|attention|dear", re.I
)
_GREETING: Final = re.compile(r"\b(?:hi|hello|hey)\b", re.IGNORECASE)
_SURNAME: Final = re.compile(
    r"(?:ov[áa]|[eo]v|[eo]va|enko|chuk|czuk|sk[iíý]|ska|sky|skaya|wicz|vić|vic|ić|sson|ss?en|d[óo]ttir"
    r"|sdotter|poulos|opoulou|idis|akis|akos|escu|dze|shvili|[mnrtdlgb]ez|etti|elli|cci|ini|berger|qvist"
    r"|kvist|gaard|nen|o[ğg]lu|zadeh|stein|mann|ström|strom|[mn]aier|meyer|ovich|evich|czyk|čík|ček|ák)\Z"
)
_NOT_SURNAMES: Final = re.compile(
    r"(?:citizen|kitchen|chicken|garden|golden|mission|houston|women|open|hidden|japanese|linen|queen"
    r"|frozen|eleven|heaven|oven|haven|kitten|golden|broken|chosen|screen|green|token|dozen|raven"
    r"|houses?|human|roman|german|norman|ottoman|walkman|batman|superman|spiderman|mini|bikini"
    r"|martini|panini|linguini|zucchini|spaghetti|confetti|moscow|pskov|kharkov|rostov|saratov"
    r"|helsinki|suzuki|kawasaki|nagasaki|whisky|husky|risky|sky|tricky|frankenstein)\Z"
)
_SPEECH: Final = re.compile(
    r" (?:said|says|asked|replied|told|wrote|writes|added|explained|argued|noted|was born|is a|lives"
    r"|lived|works|worked|called|emailed|thinks|thought|married|died|loves|likes|wants|needs)\b"
)
_LONGEST: Final = 5
_COMMON: Final = (
    frozenset(ORDINARY) | VERBS | AUXILIARIES | PRONOUNS | STOP_WORDS
    | frozenset(
        """hello hi hey dear thanks thank please regards sincerely sorry yes no ok okay name names from
        to team all everyone everybody folks guys sir madam customer box p o there subject date re phone email fax tel address user bot agent customer question answer what
        when where why how who which today tomorrow yesterday january february march april june july
        august september october november december monday tuesday wednesday thursday friday saturday
        sunday english french german spanish italian russian chinese japanese american british""".split()
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def key(self) -> str:
        """In lower case, without accents that given names are written without here."""
        return self.text.lower()


def _plain(word: str) -> str:
    return "".join(
        letter
        for letter in unicodedata.normalize("NFKD", word)
        if not unicodedata.combining(letter)
    )


def _is_given(word: str) -> bool:
    """Whether it is a given name, or two with a hyphen."""
    parts = word.split("-")
    return all(part in GIVEN or part in ALSO_WORDS or _plain(part) in GIVEN for part in parts)


def _is_word_too(word: str) -> bool:
    return word in ALSO_WORDS or (word in _COMMON and word not in GIVEN)


def persons(plain: str) -> Iterator[PersonalSpan]:
    """Names of persons, without their titles."""
    for group in _groups(plain):
        person = _person(plain, group)
        if person is not None:
            tokens, score = person
            end = tokens[-1].end
            if tokens[-1].text.endswith(("'s", "'S")):
                end -= 2
            yield span("person", tokens[0].start, end, NAME, score)


def _groups(plain: str) -> Iterator[list[_Token]]:
    """Words with capitals that follow each other, with the particles between them."""
    group: list[_Token] = []
    pending: list[_Token] = []
    last = -1
    for match in _WORD.finditer(plain):
        if not group and not match.group()[0].isupper():
            last = match.end()
            continue
        token = _Token(match.group(), *match.span())
        joined = bool(group) and _follows(plain, group, pending, last, token.start)
        if token.text[0].isupper():
            if not joined:
                if group:
                    yield group
                group, pending = [], []
            group = [*group, *pending, token]
            pending = []
        elif joined and token.key in _PARTICLES and len(pending) < 2:
            pending = [*pending, token]
        else:
            if group:
                yield group
            group, pending = [], []
        last = token.end
        if len(group) > 12:
            yield group
            group, pending = [], []
    if group:
        yield group


def _follows(plain: str, group: list[_Token], pending: list[_Token], last: int, start: int) -> bool:
    """Whether a word goes on a group: behind a blank, and behind a point after a short word."""
    between = plain[last:start]
    if not _JOINED.fullmatch(between):
        return False
    before = (pending or group)[-1]
    short = len(before.text) == 1 or before.key in _TITLES or before.key in ("jr", "st")
    return "." not in between or short


def _person(plain: str, group: list[_Token]) -> tuple[list[_Token], float] | None:
    """The part of a group that names a person and how sure that is."""
    tokens = list(group)
    titled = weak = False
    while len(tokens) > 1 and (tokens[0].key in _TITLES or _is_opener(tokens)):
        if tokens[0].key in _TITLES:
            titled, weak = True, tokens[0].key in _WEAK_TITLES
        tokens = tokens[1:]
    while tokens and tokens[-1].key in _PARTICLES:
        tokens = tokens[:-1]
    if not tokens or len(tokens) > _LONGEST:
        return None
    keys = [token.key.removesuffix("'s") for token in tokens]
    has_given_name = _is_given(keys[0])
    if len(keys) == 1 and not has_given_name and keys[0] in _COMMON:
        # Like the first word of most sentences: it names nobody, whatever stands around it.
        return None
    if any(key in _NO_PERSON for key in keys) or _is_address(plain, tokens[0].start):
        return None
    if titled and not (weak and not has_given_name and len(tokens) < 2):
        return (tokens, 0.90) if keys[0] not in _COMMON or has_given_name else None
    before = plain[max(0, tokens[0].start - 48) : tokens[0].start]
    cue = _CUE.search(before)
    if cue and (keys[0] not in _COMMON or has_given_name):
        strong = bool(_STRONG_CUE.search(cue.group()))
        if has_given_name or strong:
            return tokens, 0.85
        if len(tokens) > 1 or _GREETING.search(cue.group()):
            return tokens, 0.55
    return _unintroduced(plain, tokens, keys, has_given_name)


def _unintroduced(
    plain: str, tokens: list[_Token], keys: list[str], given: bool
) -> tuple[list[_Token], float] | None:
    """A name that nothing announces."""
    if len(tokens) == 1:
        text = tokens[0].text
        if not given or (text.isupper() and len(text) > 1) or len(text) < 3:
            return None
        if not _is_word_too(keys[0]):
            return tokens, 0.60
        spoken = _SPEECH.match(plain, tokens[0].end) or _opens_a_line(plain, tokens[0])
        return (tokens, 0.55) if spoken and keys[0] in GIVEN else None
    if keys[0] in _PLACE_LEADS:
        return None
    if given and (keys[1] not in _COMMON or len(keys[1]) == 1):
        return tokens, 0.65 if _is_word_too(keys[0]) else 0.85
    if given and keys[1] in _COMMON and not _is_word_too(keys[0]):
        return tokens[:1], 0.60
    if len(tokens[0].text) == 1 and plain[tokens[0].end : tokens[0].end + 1] == ".":
        return (tokens, 0.60) if keys[-1] not in _COMMON and len(keys[-1]) > 2 else None
    last = keys[-1]
    formed = len(last) > 4 and _SURNAME.search(last) and not _NOT_SURNAMES.search(last)
    if formed and keys[0] not in _COMMON and len(keys[0]) > 2 and not tokens[0].text.isupper():
        return tokens, 0.60
    return None


def _is_opener(tokens: list[_Token]) -> bool:
    """Whether the first word only has its capital for opening a sentence."""
    key = tokens[0].key
    if _is_given(key):
        return key in _COMMON and key not in GIVEN and _is_given(tokens[1].key)
    return key in _COMMON or key.split("'")[0] in _COMMON


def _is_address(plain: str, start: int) -> bool:
    return _STREETS_BEFORE.search(plain, max(0, start - 7), start) is not None


def _opens_a_line(plain: str, token: _Token) -> bool:
    """Whether a word is a speaker's label: at the head of a line, before a colon."""
    before = plain[max(0, token.start - 1) : token.start]
    return before in ("", "\n") and plain[token.end : token.end + 1] == ":"
