"""The frame of a question: masked names and quotations, its tasks, its coordinations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from crp_integrations.language.word_lists import LISTS
from crp_integrations.language.words import (
    AUXILIARIES,
    DETERMINERS,
    ORDINARY,
    PAST_OF,
    PREPOSITIONS,
    STOP_WORDS,
    VERBS,
    TextWord,
    is_finite,
    words,
)

# Private-use character, which has no meaning in any user's text.
SIGN = "\ue000"
# Possessive and anchored at its start, so that long runs are not retried at every sign.
NAME = rf"(?<!{SIGN}){SIGN}++"

WH = frozenset("who whom whose what which when where why how".split())
# Imperative verbs that open a request, such as "explain".
TELLING = frozenset(LISTS["telling"])

_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', SIGN: " "})
_QUOTED = re.compile(
    r'"[^"]{1,200}"|(?<!\w)`[^`]{1,200}`|(?<!\w)\'(?=\w)[^"]{1,80}?(?<=[\w!?])\'(?!\w)'
)
_TOKEN = re.compile(r"[^\W_](?:[\w.&/+#]|-(?=\w)|'(?!s\b)(?=\w)){0,80}")
_OPENERS = (
    WH | TELLING | AUXILIARIES | STOP_WORDS | ORDINARY | PREPOSITIONS | VERBS | {"the", "besides"}
)
_WITHIN = re.compile(r" (?:of(?: the)?|de|del|di|la|van|von|den|der|du|&|'n') ")
_SHORTENED = re.compile(r"(?:[A-Z]|St|Mt|Dr|Mr|Mrs|Ms|Jr|Sr|No|Inc|vs|\w*\.\w+)\.")
_ENDS = re.compile(r"[.?!;:]\s")
_EDGE = " \t,;:.?!-\u2013\u2014"


@dataclass(frozen=True, slots=True)
class MaskedQuestion:
    """A stretch of a question.

    Attributes:
        text: original words, on one line, with straight quotes.
        mask: the text with names and quotations replaced by runs of `SIGN`; same length.
    """

    text: str
    mask: str

    def cut(self, start: int, end: int | None = None) -> MaskedQuestion:
        """The part [start, end), without blanks and punctuation at its edges."""
        end = len(self.text) if end is None else end
        while start < end and self.mask[start] in _EDGE:
            start += 1
        while end > start and self.mask[end - 1] in _EDGE:
            end -= 1
        return MaskedQuestion(self.text[start:end], self.mask[start:end])

    def join(self, *others: MaskedQuestion) -> MaskedQuestion:
        """This part and others, joined by blanks; empty parts are skipped."""
        parts = [part for part in (self, *others) if part.text]
        return MaskedQuestion(
            " ".join(part.text for part in parts), " ".join(part.mask for part in parts)
        )

    @property
    def first(self) -> str:
        """The first word in lower case (signs for a name); empty if there is none."""
        return self.mask.split(" ", 1)[0].strip(_EDGE).casefold()


def mask_question(text: str) -> MaskedQuestion:
    """The question with its names and quotations masked."""
    line = " ".join(text.translate(_STRAIGHT).split())
    mask = list(line)
    for match in _QUOTED.finditer(line):
        mask[match.start() : match.end()] = SIGN * (match.end() - match.start())
    signs = "".join(mask)
    for start, end in _names(signs):
        mask[start:end] = SIGN * (end - start)
    return MaskedQuestion(line, "".join(mask))


def _names(line: str) -> list[tuple[int, int]]:
    """Runs of capitalized words and numbers, also joined across `of` and similar words."""
    runs: list[tuple[int, int, bool]] = []
    opening = True
    for match in _TOKEN.finditer(line):
        token, start = match.group(), match.start()
        end = match.end()
        if token.endswith(".") and not _SHORTENED.fullmatch(token):
            end -= 1
        capital = any(character.isupper() for character in token)
        if opening and token.casefold() in _OPENERS:
            capital = False
        number = token[0].isdigit()
        if capital or number:
            gap = line[runs[-1][1] : start] if runs else "?"
            if gap == " " or (capital and not number and _WITHIN.fullmatch(gap)):
                runs[-1] = (runs[-1][0], end, runs[-1][2] or not number)
            else:
                runs.append((start, end, not number))
        opening = _ENDS.match(line, end) is not None
    return [(start, end) for start, end, named in runs if named]


def without_article(part: MaskedQuestion) -> MaskedQuestion:
    """A phrase without its leading article."""
    match = re.match(r"(?:the|a|an)\s", part.mask, re.IGNORECASE)
    return part.cut(match.end()) if match else part


_ASKS = re.compile(
    rf"(?:(?:{'|'.join(sorted(PREPOSITIONS))}) )?(?:{'|'.join(sorted(WH))})\b"
    rf"|(?:{'|'.join(sorted(TELLING | AUXILIARIES))}) ",
    re.IGNORECASE,
)


def opens_with_question(part: MaskedQuestion) -> bool:
    """Whether it opens with a question word (or preposition and question word) or a request."""
    return _ASKS.match(part.mask) is not None


_MEMBER = rf"(?:[Tt]he )?{NAME}(?:'s(?= (?:and|or|,)))?"
_NAMES = re.compile(
    rf"(?P<members>{_MEMBER}(?:, {_MEMBER}){{0,8}}),? (?P<joint>and|or|vs\.?|versus|with|to|against"
    rf"|than|from) (?P<last>{_MEMBER})",
)
# Nouns that are followed by the topic of a view, as in "attitude to".
VIEWS = "approach|attitude|perspective|position|stance|treatment|view"
_COMMA = re.compile(r",\s*")
_PHRASE_END = re.compile(
    rf"\s(?=(?:{'|'.join(sorted(PREPOSITIONS | AUXILIARIES))}|(?:{VIEWS})(?:s|es)?)\s)|[,;:]",
    re.IGNORECASE,
)
# `temporary and permanent loans`: an adjective alone shares the noun that comes later.
ADJECTIVE = re.compile(r"(?:the )?[a-z-]{2,20}(?:ary|al|ar|ent|ant|ive|ic|ous|able|ible|ful|less)")
MAX_MEMBERS = 10


@dataclass(frozen=True, slots=True)
class SharedFrame:
    """A coordination ("A, B and C") and the text around it.

    Attributes:
        members: two or more coordinated parts, without articles.
        joint: word before the last member, in lower case.
    """

    before: MaskedQuestion
    members: tuple[MaskedQuestion, ...]
    after: MaskedQuestion
    joint: str


def coordinated_names(part: MaskedQuestion, joints: frozenset[str]) -> SharedFrame | None:
    """The first coordination of names that one of the joints connects."""
    for match in _NAMES.finditer(part.mask):
        joint = match["joint"].rstrip(".")
        if joint in joints:
            first, last = match.span("members"), match.span("last")
            members = [*coordinated_pieces(part.cut(*first)), part.cut(*last)]
            return SharedFrame(
                part.cut(0, match.start()),
                tuple(without_article(member) for member in members[:MAX_MEMBERS]),
                part.cut(match.end()),
                joint,
            )
    return None


def coordinated_phrases(part: MaskedQuestion, joints: frozenset[str]) -> SharedFrame | None:
    """The phrases around a joint; the last ends at a preposition or an auxiliary."""
    pattern = rf" (?P<joint>{'|'.join(sorted(joints))})\.? "
    match = re.search(pattern, part.mask, re.IGNORECASE)
    if match is None:
        return None
    left, right = part.cut(0, match.start()), part.cut(match.end())
    end = _PHRASE_END.search(right.mask)
    last = right.cut(0, end.start()) if end else right
    members = [*coordinated_pieces(left), last]
    head = last.mask.rfind(" ")
    if len(members) == 2 and head > 0 and ADJECTIVE.fullmatch(left.mask):
        members[0] = left.join(last.cut(head))
    if len(members) > MAX_MEMBERS or not all(member.text for member in members):
        return None
    return SharedFrame(
        part.cut(0, 0),
        tuple(without_article(member) for member in members),
        right.cut(end.start()) if end else part.cut(0, 0),
        match["joint"].casefold(),
    )


def coordinated_pieces(part: MaskedQuestion) -> list[MaskedQuestion]:
    """The parts between commas; a comma within a name does not count."""
    pieces: list[MaskedQuestion] = []
    start = 0
    for match in _COMMA.finditer(part.mask):
        pieces.append(part.cut(start, match.start()))
        start = match.end()
    pieces.append(part.cut(start))
    return [piece for piece in pieces if piece.text]


def trim_frame(part: MaskedQuestion) -> MaskedQuestion:
    """A part without leading question words, auxiliaries and articles."""
    while part.first in _ASKING:
        end = part.mask.find(" ")
        if end < 0:
            return part.cut(0, 0)
        part = part.cut(end)
    return part


_ASKING = WH | AUXILIARIES | {"the", "a", "an", "there", "please", "us", "me", "both", "between"}


_END = re.compile(rf"[?!]+[\"')]*\s+|;\s+|(?<=[\w{SIGN}]{{2}})\.\s+(?=[A-Z{SIGN}\"])")
_JOINT = re.compile(
    r",? (?P<joint>and|but)(?: also| then| please)* |[:,.\u2013\u2014] ", re.IGNORECASE
)
# Verbs that come before their subject in a question; after `_MODALS` an article opens a subject.
_INVERTED = frozenset(word for word in AUXILIARIES if "'" not in word) - {"be", "been", "am"}
_MODALS = _INVERTED - frozenset("is are was were has have had".split())
_SUBJECTS = frozenset("i you we they he she it there".split())
# Words that cannot begin a subject: after an auxiliary they open a predicate.
_NO_SUBJECTS = PREPOSITIONS | PAST_OF.keys() | VERBS | frozenset("born not also still be".split())
# Words before a question word: "until when", "and what".
_LEADS = PREPOSITIONS | WH | frozenset("and but or until till since".split())
# "Tell me what the fee is": a question within a request.
_WITHIN_REQUEST = re.compile(
    rf"(?:{'|'.join(sorted(TELLING | AUXILIARIES))}) .*\b(?:what|how|why)(?: \w+)?"
    rf" (?:{'|'.join(sorted(DETERMINERS | _SUBJECTS))}) ",
    re.IGNORECASE,
)
_RELATIVE = frozenset("who whom whose which".split())
# "When is": never a relative clause.
_ASKS_PLAINLY = re.compile(
    rf"(?:{'|'.join(sorted(WH - _RELATIVE))}) (?:{'|'.join(sorted(_INVERTED))}) ", re.IGNORECASE
)
# A relative word after the words that open a question, as in "Tell me which".
_RELATES = re.compile(
    rf"(?:(?:\S+ ){{0,2}}?(?:{'|'.join(sorted(WH))}) )?+.* (?:{'|'.join(sorted(_RELATIVE))}) ",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"\b(?:it|they|them|he|she|him)\b", re.IGNORECASE)
_NAME = re.compile(NAME)


def split_tasks(question: MaskedQuestion) -> list[MaskedQuestion]:
    """Split a question into the questions that it asks, in order, each a piece of it.

    A boundary is one only if a complete question stands before it and another begins after it: a
    question word with its verb, a verb before its subject, or a request. A statement stays with the
    question after it, or with the last one.
    """
    cuts: list[tuple[int, int]] = []
    asked = after_question = False
    start = begin = last = 0
    for match in [*_END.finditer(question.mask), None]:
        end = len(question.mask) if match is None else match.end()
        openings = _openings(question, start, end)
        # The last sentence may be the rest of one that was cut at an abbreviation's point.
        marked = "?" in question.mask[start:end] and (match is not None or after_question)
        if not openings and marked and len(words(question.text[start:end])) > 1:
            openings = [(start, start)]
        after_question = match is not None and "?" in match.group()
        if openings:
            if asked:
                cuts.append((begin, last))
                begin = last
            for before, after in openings[1:]:
                cuts.append((begin, before))
                begin = after
            asked, last = True, end
        start = end
    return [question.cut(*cut) for cut in [*cuts, (begin, len(question.mask))]]


def _openings(question: MaskedQuestion, start: int, end: int) -> list[tuple[int, int]]:
    """Where questions begin in a sentence: the end of what stands before each, and its start."""
    joints = [(start, start, "")]
    for match in _JOINT.finditer(question.mask, start, end):
        piece = words(question.text[joints[-1][1] : match.start()])
        # "When and where is the fair" is one question.
        if match[0][0] == "," or not (piece and all(word.lower in WH for word in piece)):
            joints.append((match.start(), match.end(), "and" if match["joint"] else ","))
    # In a row that goes on with a question, "who pays" is one too, not a relative clause.
    rows = {"": _ASKS, "and": _ASKS, ",": _ASKS_PLAINLY}
    closes = max(
        (at for _, at, joint in joints if rows[joint].match(question.mask, at)), default=start
    )
    stated = _WITHIN_REQUEST.match(question.mask, start, end) is not None
    openings: list[tuple[int, int]] = []
    condition: tuple[int, int] | None = None
    for (before, at, joint), (until, _, _) in pairwise([*joints, (end, end, "")]):
        earlier = question.cut(openings[-1][1], before) if openings else None
        part = question.cut(at, until)
        in_row = joint == "and" or at < closes
        if _asks(part, earlier, joint=joint, in_row=in_row, stated=stated):
            openings.append(condition or (before, at))
            condition = None
        elif joint == "and":
            # "and if so, what does it cost"
            condition = (before, at) if part.first == "if" else None
    return openings


def _asks(
    part: MaskedQuestion,
    earlier: MaskedQuestion | None,
    *,
    joint: str,
    in_row: bool,
    stated: bool,
) -> bool:
    """Whether a stretch is a complete question or request, beside the question before it."""
    tokens = words(part.text)
    place, after_lead = 0, WH | {"and", "or"}
    while len(tokens) > place + 2 and tokens[place].lower in _LEADS:
        if tokens[place + 1].lower not in after_lead:
            break
        place += 1
    if len(tokens) < place + 2:
        return False
    word, following = tokens[place].lower, tokens[place + 1].lower
    relates = earlier is not None and _RELATES.match(earlier.mask) is not None
    if word.partition("'")[0] in WH:
        # What stands in the noun phrase of another question is a relative clause.
        free = earlier is None or (in_row and not relates)
        return _has_verb(part, tokens, place, free=free, stated=stated)
    if word in TELLING or (word in VERBS and following in WH):
        if earlier is None:
            return joint != "and"
        if earlier.first in TELLING:
            return following not in AUXILIARIES | {"of", "by"}
        return earlier.first in WH and following in DETERMINERS | WH | {"me", "us"}
    if earlier is None and not joint:
        return word in _INVERTED or word.endswith("n't")
    if not _inverts(part, tokens, place):
        return False
    if following in _SUBJECTS or (word in _MODALS and following in DETERMINERS):
        return True
    if earlier is None or earlier.first in AUXILIARIES:
        return joint != "and" or earlier is not None
    # "and is based in Oslo" says more of a subject that the question word stands for.
    asked = words(earlier.text)
    verb = next((spot for spot, token in enumerate(asked) if token.lower in _INVERTED), 0)
    shared = relates or " that " in earlier.mask or tokens[place + 2].lower in PREPOSITIONS
    return not shared and _inverts(earlier, asked, verb)


def _has_verb(
    part: MaskedQuestion, tokens: Sequence[TextWord], place: int, *, free: bool, stated: bool
) -> bool:
    """Whether a clause with a question word has a verb, in a question's order or as stated."""
    word, contracted, _ = tokens[place].lower.partition("'")
    if contracted:
        return free or word not in _RELATIVE
    if tokens[place + 1].lower in DETERMINERS | _SUBJECTS and not stated:
        return False
    verbs = (
        spot
        for spot in range(place + 1, len(tokens))
        if is_finite(tokens, spot)
        or (spot > place + 1 and (tokens[spot].lower in VERBS or _is_past(tokens[spot].lower)))
    )
    verb = next(verbs, place + 1 if word == "who" else None)
    if verb is None or (tokens[verb].lower in AUXILIARIES and verb + 1 == len(tokens)):
        return False
    inverted = tokens[verb].lower in _INVERTED and _inverts(part, tokens, verb)
    if word in _RELATIVE:
        subject = inverted and tokens[verb + 1].lower in _SUBJECTS
        return free or subject or (inverted and tokens[verb].lower in _MODALS)
    if verb > place + 1:
        # "how Raft works" and "when Jane arrives" state.
        named = part.mask[tokens[place + 1].start] == SIGN
        return stated or word == "what" or (word == "how" and not named)
    return word == "what" or tokens[verb].lower in AUXILIARIES


def _inverts(part: MaskedQuestion, tokens: Sequence[TextWord], place: int) -> bool:
    """Whether an auxiliary stands before its subject, and something is said of this."""
    if len(tokens) < place + 3 or tokens[place].lower not in _INVERTED:
        return False
    verb, subject = tokens[place].lower, tokens[place + 1].lower
    if subject in _SUBJECTS:
        return True
    if verb in ("has", "have", "had") and not any(_is_past(token.lower) for token in tokens[2:]):
        return False
    if subject in DETERMINERS:
        return verb in _MODALS or subject not in ("a", "an")
    if part.mask[tokens[place + 1].start] == SIGN:
        return True
    return subject not in _NO_SUBJECTS and not subject.endswith(("ed", "ly"))


def _is_past(word: str) -> bool:
    return word == "been" or word in PAST_OF or word.endswith("ed")


def stands_alone(need: str) -> bool:
    """Whether a need has no pronoun, or has a name before it that the pronoun may refer to."""
    asked = mask_question(need)
    pronoun = _SUBJECT.search(asked.mask)
    return pronoun is None or _NAME.search(asked.mask, 0, pronoun.start()) is not None
