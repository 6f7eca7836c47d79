"""The frame of a question: masked names and quotations, its tasks, its coordinations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from crp_integrations.language.word_lists import LISTS
from crp_integrations.language.words import (
    AUXILIARIES,
    DETERMINERS,
    ORDINARY,
    PAST_OF,
    PREPOSITIONS,
    STOP_WORDS,
    VERBS,
    content_stems,
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
# Verbs that come before their subject in a question.
_INVERTED = frozenset(word for word in AUXILIARIES if "'" not in word) - {"be", "been", "am"}
# Words that are always a subject after such a verb.
_SUBJECTS = frozenset("i you we they he she it there".split())
# Words that are not a subject there: they open a participle or a complement.
_NO_SUBJECTS = PREPOSITIONS | frozenset(PAST_OF) | frozenset("a an not also still".split())
# Verbs after which an article opens a subject, not a complement as in "is the home".
_MODALS = frozenset("do does did can could will would may might must shall should cannot".split())
_JOINT = re.compile(
    r",? (?:and|but|or|as well as|plus)(?: also| then| please)*"
    rf" (?P<word>{'|'.join(sorted(WH | TELLING))})(?= )"
    rf"|, (?:then |also )*(?P<bare>what|how|why|when|where|{'|'.join(sorted(TELLING))})(?= )"
    rf"|,? (?:and|but|or)(?: also| then)* (?P<verb>{'|'.join(sorted(_INVERTED))})(?= \S+ \S)"
    rf"|, (?P<bare_verb>{'|'.join(sorted(_INVERTED))})(?= \w+ \w)",
    re.IGNORECASE,
)
_ALWAYS = frozenset("what how why".split())
_SUBJECT = re.compile(r"\b(?:it|they|them|he|she|him)\b", re.IGNORECASE)
_OWNER = re.compile(r"\b(?:its|their|his|her)\b", re.IGNORECASE)
_PLACE = re.compile(r"\bthere\Z", re.IGNORECASE)
# Pronouns of other languages (de, fr, es, it, pt), which are never resolved.
_ELSEWHERE = re.compile(
    r"\b(?:er|sie|es|ihn|ihm|ihnen|ihre?[nmrs]?|seine?[nmrs]?|ils?|elles?|lui|leurs?|son|sa|ses|él"
    r"|ella|ellos|ellas|sus?|lei|loro|suo|sua|suoi|sue|ele|ela|eles|elas|seus?|suas)\b",
    re.IGNORECASE,
)
_NAME = re.compile(NAME)
_FEWEST = 2  # content words of a task
# Maximum number of joints examined in a sentence; the rest stays with the last task.
_MAX_JOINTS = 16


def split_tasks(question: MaskedQuestion) -> list[MaskedQuestion]:
    """Split a question into its tasks, in order; a statement stays with the task after it.

    Each task can be understood alone: a pronoun that refers to an earlier task is replaced by its
    name; if the name is not certain, the two tasks stay together.
    """
    tasks: list[MaskedQuestion] = []
    spans: list[tuple[int, int]] = []
    for start, end in _spans(question):
        task: MaskedQuestion | None = question.cut(start, end)
        while task is not None and tasks:
            task = _resolved(task, tasks[-1])
            if task is not None:
                break
            start, _ = spans.pop()
            tasks.pop()
            task = question.cut(start, end)
        tasks.append(task or question)
        spans.append((start, end))
    return tasks


def _spans(question: MaskedQuestion) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    begin = start = 0
    after_question = False
    for match in [*_END.finditer(question.mask), None]:
        end = len(question.mask) if match is None else match.end()
        sentence = question.cut(start, end)
        # The last sentence may be the rest of one that was cut at an abbreviation's point.
        questioned = "?" in question.mask[start:end] and (match is not None or after_question)
        after_question = match is not None and "?" in match.group()
        if sentence.text and (_asks(sentence) or questioned):
            (_, first), *others = _coordinated(question, start, end)
            spans += [(begin, first), *others]
            begin = end
        start = end
    if question.cut(begin).text:
        # A statement after the last task stays with it.
        spans[-1:] = [(spans[-1][0] if spans else 0, len(question.mask))]
    return spans


def _asks(sentence: MaskedQuestion) -> bool:
    return sentence.first in WH | AUXILIARIES | TELLING


def _coordinated(question: MaskedQuestion, start: int, end: int) -> list[tuple[int, int]]:
    pieces: list[tuple[int, int]] = []
    for match in islice(_JOINT.finditer(question.mask, start, end), _MAX_JOINTS):
        kind = next(name for name, word in match.groupdict().items() if word)
        before, after = question.cut(start, match.start()), question.cut(match.start(kind), end)
        if _opens(match[kind].casefold(), before, after):
            pieces.append((start, match.start()))
            start = match.start(kind)
    return [*pieces, (start, end)]


def _opens(word: str, before: MaskedQuestion, after: MaskedQuestion) -> bool:
    """Whether the word after a joint begins a separate task."""
    if len(content_stems(before.text)) < _FEWEST - (before.first in WH):
        return False
    following = after.text.split(" ", 2)[1].casefold() if " " in after.text else ""
    if word in _INVERTED:
        # "and is based in Oslo" continues a task; "and are pets permitted" begins a new one.
        tokens = words(before.mask)
        if not any(is_finite(tokens, place) for place in range(len(tokens))):
            return False
        if following in _SUBJECTS or (word in _MODALS and following in DETERMINERS):
            return True
        noun = not following.endswith(("ed", "ly")) and following not in _NO_SUBJECTS
        return noun and before.first in AUXILIARIES
    if word in TELLING:
        return before.first in TELLING | WH and following not in AUXILIARIES | {"of", "by", "and"}
    if word in _ALWAYS:
        return before.first in WH | TELLING | AUXILIARIES
    relative = re.search(rf"\s{word}\b", before.mask, re.IGNORECASE)
    asked = before.first in WH | TELLING | AUXILIARIES
    return relative is None and asked and (following in AUXILIARIES or word == "who")


def stands_alone(need: str) -> bool:
    """Whether a need has no pronoun, or has a name before it that the pronoun may refer to."""
    asked = mask_question(need)
    pronoun = _SUBJECT.search(asked.mask)
    return pronoun is None or _NAME.search(asked.mask, 0, pronoun.start()) is not None


def has_several_tasks(part: MaskedQuestion) -> bool:
    """Whether a task contains further tasks that cannot be understood alone."""
    return len(_spans(part)) > 1


def _resolved(task: MaskedQuestion, before: MaskedQuestion) -> MaskedQuestion | None:
    """The task with its pronoun replaced by a name; None if it cannot be understood alone."""
    if not opens_with_question(task):
        # Another language: accept it with a name after the first word and no pronoun.
        named = _NAME.search(task.mask, max(0, task.mask.find(" ")))
        return task if named and not _ELSEWHERE.search(task.mask) else None
    pronoun = next(filter(None, (p.search(task.mask) for p in (_SUBJECT, _OWNER, _PLACE))), None)
    if pronoun is None or _NAME.search(task.mask, 0, pronoun.start()):
        return task
    meant = trim_frame(before.cut(len(before.first)) if before.first in TELLING else before)
    names = [
        match for match in _NAME.finditer(meant.mask) if meant.text[slice(*match.span())] != "I"
    ]
    if len(names) != 1:
        return None
    (name,) = names
    verb, _, rest = meant.mask[: name.start()].strip().rpartition(" ")
    subject = name.start() == 0 and not meant.mask.startswith("'s", name.end())
    # `Who founded Acme`: `it` can only refer to the name.
    sole = (
        before.first == "who"
        and name.end() == len(meant.mask)
        and pronoun.group().casefold() in ("it", "its", "there")
        and (rest or verb).casefold() not in PREPOSITIONS
    )
    if not (subject or sole):
        return None
    prefix, suffix = "at " * (pronoun.re is _PLACE), "'s" * (pronoun.re is _OWNER)
    whole = meant.cut(*name.span())
    whole = MaskedQuestion(prefix + whole.text + suffix, prefix + whole.mask + suffix)
    return task.cut(0, pronoun.start()).join(whole, task.cut(pronoun.end()))
