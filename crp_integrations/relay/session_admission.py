"""Admission of a window: its session, policy, nonce, circuit breaker, and earlier windows.

The session is read once, at the beginning. The safety budget is read again when the window closes,
in the transaction that charges it.

Spec: related facts §3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.pii.contact import finds_phones
from crp_integrations.dpe.ports import Verifier
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import (
    AccessDenied,
    ConfigError,
    PolicyRelaxed,
    RequestError,
    TokenRefused,
    UnknownContinuation,
)
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.policy.demands import GIVE, halting_demands, reader_demands, refusal_words
from crp_integrations.policy.inheritance import apply_mode, combine_strictest, tighten, with_actions
from crp_integrations.policy.policy_text import RANDOM_BYTES, check_nonce, make_nonce, parse_policy
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import inheritance_report
from crp_integrations.ports import retired_of
from crp_integrations.relay.defaults import reads_claims
from crp_integrations.relay.judge import BACKGROUND, Judge
from crp_integrations.relay.prior_windows import hidden_windows
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.world import World
from crp_integrations.seals import derive_key, iso, sha256, sha256_hex
from crp_integrations.session import agents, token
from crp_integrations.session import budget as safety
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode, resolve_continuations
from crp_integrations.session.settings import RegisteredAgent
from crp_integrations.session.token import SessionToken, claimed_session
from crp_integrations.session.window_graph import check_limits, last_windows, pattern_of
from crp_integrations.session.window_graph import seen_windows as ancestry
from crp_integrations.vocabulary import (
    HaltReason,
    Oversight,
    Pattern,
    RiskLevel,
    SafetyMode,
    Strategy,
)

NONCE_KEY_INFO: Final = b"crp-safety-nonce-key-v1"


def new_nonce(policy: Policy, world: World) -> str:
    """A new nonce that is valid for one policy only."""
    # Ids come from an unpredictable source, except in tests that pass their own.
    chance = bytes.fromhex(sha256_hex(world.ids.new("nonce_")))[:RANDOM_BYTES]
    return make_nonce(policy, random=chance, key=_nonce_keys(world)[-1])


def require_nonce(nonce: str, policy: Policy, world: World) -> None:
    """Refuse a nonce that was not issued for exactly this policy."""
    refused: RequestError | None = None
    # A nonce made with a retired key is valid too, since the same operator issued it.
    for key in reversed(_nonce_keys(world)):
        try:
            check_nonce(nonce, policy, key=key)
        except RequestError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _nonce_keys(world: World) -> list[bytes]:
    keyring, tenant = world.keyring, world.places.namespace.subject.tenant
    retired = retired_of(keyring)
    masters = (*retired, keyring.master())
    return [derive_key(master, salt=tenant, info=NONCE_KEY_INFO) for master in masters]


@dataclass(frozen=True, slots=True)
class Admission:
    """A window's place in its session.

    Attributes:
        report_only: second policy that is evaluated but not enforced.
        parents: windows that it continues; the session's last ones if it continues none.
        prior: records of the continued windows and those before, for envelope and report.
        safety_budget: remaining budget, limited by the caller's ceiling.
        sources: earlier windows whose stored content the window receives.
        named: whether the parents were named; else the window follows the last one at its close.
        stated: the policy that the session keeps, without the question's `on_flag`; None if none
            was stated, so that a later request may state any.
        continues: whether the parents were named by continuation ids.
        token: the session token of the request; None for none.
        earlier: records of the session's windows if it continues none of them: its answer is
            compared with theirs, but its envelope is that of a new question.
    """

    session: Session | None
    policy: Policy
    report_only: Policy | None
    parents: tuple[WindowNode, ...]
    prior: tuple[EarlierWindow, ...]
    safety_budget: float
    barred: HaltReason | None = None
    pattern: Pattern = Pattern.LINEAR
    windows: tuple[WindowNode, ...] = ()
    preferred: Strategy | None = None
    named: bool = False
    sources: tuple[EarlierWindow, ...] = ()
    stated: Policy | None = None
    depth: int = 0
    continues: bool = False
    token: SessionToken | None = None
    earlier: tuple[EarlierWindow, ...] = ()

    def strategy(self, wanted: Strategy) -> Strategy:
        """The strategy of a single window: a half-open circuit breaker makes it reflexive."""
        single = wanted in (Strategy.PUSH, Strategy.STREAMING)
        return self.preferred if single and self.preferred else wanted


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a window among the windows of one strategy.

    Attributes:
        parents: ids of the windows that it follows; empty for the session's last.
        sibling: its number among the windows of one fan-out, from 1; 0 for a single window.
        strategy: the caller's strategy that the window is part of; None for the window's own.
    """

    parents: tuple[str, ...] = ()
    sibling: int = 0
    strategy: Strategy | None = None


ALONE: Final = Place()


def admit_window(
    request: Request, session_id: str, namespace: Namespace, world: World, place: Place
) -> Admission:
    """Check a request and find its window's place in the session.

    Spec: CRP-SPEC-003 §14.1; related facts §5, §6, §8
    """
    settings = world.settings
    with namespace.begin(write=False) as transaction:
        sessions = sessions_of(transaction)
        stored = sessions.session(session_id)
        in_memory = world.memory.sessions.of(session_id)
        session = _stricter_session(stored, in_memory.session)
        nodes = tuple(sessions.windows(session_id)) if stored else ()
        nodes = tuple(sorted((*nodes, *in_memory.nodes), key=lambda node: node.window_number))
        own = {node.continuation_id: node for node in nodes if node.continuation_id}
        parents = resolve_continuations(request.continuation_ids, session_id, own.get)
        by_id = {node.window_id: node for node in nodes}
        after = tuple(by_id[id_] for id_ in place.parents if id_ in by_id)
        last = parents or (() if after or request.prior else last_windows(nodes))
        before = _ancestors(nodes, last, named=bool(parents))
        priors = sessions.priors(before)
        # Of a session that was forgotten, or is older than the retention, only seals remain.
        sealed = () if session else tuple(transaction.journal.seals(session_id))
        above = request.parent_session if session is None else session.parent_session
        parent = _parent_session(sessions.session(above) if above else None, above, world)
    if session is not None and session.ended:
        raise AccessDenied(f"session {session_id} has ended; begin another one")
    name = session.agent_id if session else ""
    if name and request.agent_id not in ("", name):
        # Otherwise an agent could evade its limits under another agent's name.
        raise AccessDenied(
            f"session {session_id} belongs to agent {name!r:.60}; agent {request.agent_id!r:.60} "
            "needs a session of its own"
        )
    agent = agents.find_agent(request.agent_id or name, settings.sessions.agents)
    depth = max(request.loop_depth, session.loop_depth if session else 0)
    agents.admit_agent(
        agent,
        strategy=place.strategy or request.strategy,
        loop_depth=depth,
        settings=settings.sessions.agents,
    )
    stated = _with_safety_mode(
        _policy(world, (session, parent), agent, request, session_id), request
    )
    again = request.most_again
    policy = with_actions(stated or Policy(), request.on_flag, request.on_flag_level, again)
    # An unmeasurable demand would withhold every answer, after its model call was paid for.
    require_reader(policy, world, request.accept_risk)
    if request.nonce:
        require_nonce(request.nonce, stated or Policy(), world)
    left = session.safety_budget if session else _budget_left(sealed, settings)
    if place.sibling and after:
        left = safety.merge_budgets(parent.safety_budget for parent in after)
    # An agent has at most its parent's budget, even if the request states none.
    left = safety.apply_ceiling(left, parent.safety_budget if parent else None)
    left = safety.apply_ceiling(left, request.safety_budget)
    session_token = _token(request, session_id, nodes, world) if request.session_token else None
    if session_token is not None:
        left = safety.apply_ceiling(left, session_token.safety_budget)
    known = {**priors, **in_memory.priors} if before else {}
    for id_ in hidden_windows(namespace, nodes, known):
        known.pop(id_, None)
    # A window whose texts the store no longer keeps is left out.
    ids = () if request.prior else before
    earlier_windows = tuple(known[id_] for id_ in ids if id_ in known)
    continued = earlier_windows if parents else ()
    prior = request.prior or merge_fan_out(continued)
    # Questions that merely share a session do not branch, so only named parents have followers.
    check_limits(nodes, [parent.window_id for parent in parents], settings.sessions.graph)
    followed = parents or after or last_windows(nodes)
    report_only = parse_policy(request.report_only) if request.report_only else None
    return Admission(
        session=session,
        policy=policy,
        report_only=report_only,
        parents=followed,
        prior=prior,
        safety_budget=left,
        barred=_halt_reason(request, (policy, report_only or Policy()), left, settings),
        sources=continued,
        named=bool(parents or after),
        stated=stated,
        depth=depth,
        continues=bool(parents),
        token=session_token,
        earlier=() if parents else merge_fan_out(earlier_windows),
        preferred=_preferred(left, agent, settings),
        pattern=pattern_of(nodes, [node.window_id for node in followed], fanned=place.sibling > 0),
        windows=nodes,
    )


def _ancestors(
    nodes: Sequence[WindowNode], last: Sequence[WindowNode], *, named: bool
) -> tuple[str, ...]:
    """Ids of all windows before a window with these parents; none in a forgotten session."""
    try:
        return ancestry(nodes, [window.window_id for window in last])
    except UnknownContinuation:
        if named:
            raise
        return ()


def _preferred(left: float, agent: RegisteredAgent | None, settings: Settings) -> Strategy | None:
    """The strategy that the circuit breaker asks for, if the agent may use it."""
    preferred = safety.preferred_strategy(left, settings.sessions.budget)
    allowed = agent.allowed_strategies if agent else None
    return preferred if allowed is None or preferred in allowed else None


def _budget_left(sealed: Sequence[WindowSeal], settings: Settings) -> float:
    """The safety budget that remains after a session's sealed windows."""
    left = settings.sessions.budget.start
    for seal in sealed:
        if seal.outcome == "released" and seal.risk_level:
            left = safety.charge(left, RiskLevel(seal.risk_level), settings.sessions.budget.costs)
    return left


def _parent_session(stored: Session | None, id_: str, world: World) -> Session | None:
    """The session that another one names as its parent; None if it is not known here."""
    return _stricter_session(stored, world.memory.sessions.of(id_).session) if id_ else None


def _stricter_session(stored: Session | None, in_memory: Session | None) -> Session | None:
    """Merge a session's stored state and its state in memory: the stricter value of each."""
    if stored is None or in_memory is None:
        return stored or in_memory
    left = min(stored.safety_budget, in_memory.safety_budget)
    policy = "; ".join(
        dict.fromkeys(session.policy for session in (stored, in_memory) if session.policy)
    )
    return stored.changed(safety_budget=left, policy=policy, ended=stored.ended or in_memory.ended)


def _policy(
    world: World,
    sessions: Sequence[Session | None],
    agent: RegisteredAgent | None,
    request: Request,
    session_id: str,
) -> Policy | None:
    """The strictest of all policies over the session, tightened by the request's own policy."""
    # The operator's current policy is included, so an older session follows it too.
    layers = [
        parse_policy(text)
        for text in (
            world.settings.policy,
            agent.safety_policy if agent else "",
            request.inherited_policy,
            *(session.policy if session else "" for session in sessions),
        )
        if text
    ]
    inherited = reduce(combine_strictest, layers) if layers else None
    if not request.policy:
        return inherited
    own = parse_policy(request.policy)
    if inherited is None:
        return own
    try:
        return tighten(inherited, own)
    except PolicyRelaxed as error:
        if world.listeners.sink is not None and (inherited.report_uri or inherited.report_to):
            at = iso(world.clock.now())
            world.listeners.sink.take(
                inheritance_report(error, session_id=session_id, timestamp=at), inherited
            )
        raise


def _with_safety_mode(policy: Policy | None, request: Request) -> Policy | None:
    """The policy tightened by the request's safety mode."""
    plain = policy or Policy()
    moded = apply_mode(plain, request.safety_mode)
    return policy if moded == plain else moded


def _halt_reason(
    request: Request, policies: Sequence[Policy], left: float, settings: Settings
) -> HaltReason | None:
    """Why no model may be asked: an oversight of `halt`, or a spent budget; None if it may."""
    if any(policy.overseen(request.oversight) is Oversight.HALT for policy in policies):
        return HaltReason.OVERSIGHT
    return HaltReason.BUDGET_DEPLETED if safety.halts(left, settings.sessions.budget) else None


def merge_fan_out(windows: Sequence[EarlierWindow]) -> tuple[EarlierWindow, ...]:
    """Windows in order of their numbers; those of one fan-out share a number and are merged."""
    by_number: dict[int, list[EarlierWindow]] = {}
    for window in sorted(windows, key=lambda sibling: (sibling.window_number, sibling.window_id)):
        by_number.setdefault(window.window_number, []).append(window)
    return tuple(_merge_siblings(by_number[number]) for number in sorted(by_number))


def _merge_siblings(siblings: Sequence[EarlierWindow]) -> EarlierWindow:
    first = siblings[0]
    if len(siblings) == 1:
        return first
    seen = {fact.fact_id: fact for window in siblings for fact in window.facts_seen}
    waiting = dict.fromkeys(fact for window in siblings for fact in window.deferred)
    return first.changed(
        facts_seen=tuple(seen[fact_id] for fact_id in sorted(seen)),
        deferred=tuple(fact for fact in waiting if fact not in seen),
        answer="\n\n".join(window.answer for window in siblings if window.answer),
        summary="\n\n".join(window.summary for window in siblings if window.summary),
        quality_tier=max((window.quality_tier for window in siblings), key=lambda tier: tier.place),
    )


def _token(
    request: Request, session_id: str, nodes: Sequence[WindowNode], world: World
) -> SessionToken:
    """The request's session token, verified to be genuine, current and of this session."""
    read = token.read_token(
        request.session_token,
        lambda named: token.reading_keys(world.keyring, named),
        now=world.clock.now(),
        scope=token_scope(world),
        settings=world.settings.sessions.token,
    )
    if read.session_id != session_id:
        raise TokenRefused(f"the session token is not one of session {session_id}")
    token.window_of_token(read, nodes)
    return read


def token_scope(world: World) -> str:
    """Hash of the tenant and user that a relay's session tokens are valid for."""
    subject = world.places.namespace.subject
    return sha256("\u241f".join((subject.tenant, subject.name)))


def session_of(request: Request, world: World) -> str:
    """The id of the request's session, given directly or by its token; else a new one."""
    if request.session_id:
        return request.session_id
    if request.session_token:
        return claimed_session(request.session_token, world.settings.sessions.token)
    return world.ids.new("crp_sess_")


NO_READER: Final = "nothing here reads answers"
JUDGED_LATE: Final = "the judge works in the background, after the answer is delivered"
SAMPLED: Final = "the judge reads a sample of the answers"


def unmeasured_demands(
    policy: Policy,
    *,
    judge: Judge | None,
    reads: bool,
    accept_risk: RiskLevel | None = None,
) -> str:
    """An error text on the policy's demands that nothing can measure; empty if all can be.

    A judge with `when="doubt"` measures them all: answers that it skips are found literally in the
    evidence.

    Spec: related facts §6

    Args:
        reads: whether a model verifier, or the composite score of `literal`, decides on claims.
    """
    if policy.repair_on is not None and judge is None:
        return f"repair-on {policy.repair_on} needs a judge, which writes the corrections; {GIVE}"
    acting = (policy.ask_again_on and not reads) or policy.repair_on
    if acting and judge is not None and judge.settings.mode == BACKGROUND:
        named = reader_demands(policy.changed(unchecked=None), accept_risk)
        return refusal_words(named, JUDGED_LATE)
    if reads:
        return ""
    if judge is None:
        demands, why = reader_demands(policy, accept_risk), NO_READER
    elif judge.settings.mode == BACKGROUND:
        demands, why = reader_demands(policy, accept_risk), JUDGED_LATE
    elif judge.settings.share < 1.0:
        # Findings in a sample can trigger another attempt, but cannot decide what to withhold.
        demands, why = halting_demands(policy, accept_risk), SAMPLED
    else:
        return ""
    return refusal_words(demands, why) if demands else ""


def _require_phones(policy: Policy) -> None:
    """Refuse `block-pii` if telephone numbers cannot be found."""
    if policy.block_pii and not finds_phones():
        raise ConfigError(
            "block-pii needs telephone numbers to be found: pip install 'crp-integrations[pii]'"
        )


def require_reader(policy: Policy, world: World, accept_risk: RiskLevel | None = None) -> None:
    """Refuse a question with demands that nothing can measure, before a model call is paid for."""
    _require_phones(policy)
    unmeasured = unmeasured_demands(
        policy,
        judge=world.engines.judge,
        reads=reads_claims(world.settings, world.engines.verifier),
        accept_risk=accept_risk,
    )
    if unmeasured:
        raise RequestError(unmeasured)


def require_reader_of(
    taker: str,
    asking: Mapping[str, Any],
    judge: Judge | None,
    settings: Settings,
    verifier: Verifier | None = None,
) -> None:
    """Refuse a component's fields if their policy has demands that nothing can measure.

    Args:
        verifier: None for the verifier of the settings.

    Raises:
        ConfigError: nothing reads the claims of its answers; names the demands and remedies.
    """
    above = [text for text in (settings.policy, asking.get("inherited_policy")) if text]
    own = asking.get("policy")
    # A question's own policy is at least as strict as those above it, or is refused.
    texts = [own] if own else above
    policy = reduce(combine_strictest, map(parse_policy, texts)) if texts else Policy()
    again = asking.get("most_again", 1)
    policy = with_actions(policy, asking.get("on_flag"), asking.get("on_flag_level"), again)
    _require_phones(policy)
    mode, accepted = asking.get("safety_mode"), asking.get("accept_risk")
    unmeasured = unmeasured_demands(
        apply_mode(policy, SafetyMode(mode) if mode else None),
        judge=judge,
        reads=reads_claims(settings, verifier),
        accept_risk=RiskLevel(accepted) if accepted else None,
    )
    if unmeasured:
        raise ConfigError(f"{taker}: {unmeasured}")
