"""Run the rules look by look and keep the findings: no flicker, bounded, the same input gives the same findings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddltop.diagnose.draft import Abstention, Draft, Rule
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Finding
from ddltop.diagnose.policy import Policy
from ddltop.diagnose.rules import RULES

_Key = tuple[Code, tuple[int, ...]]


@dataclass(slots=True)
class _Case:
    """What is known of one cause over the looks."""

    finding: Finding
    num_held: int = 1  # looks in a row in which it held
    num_missed: int = 0  # looks in a row in which it did not
    is_public: bool = False


class DiagnosisEngine:
    """Findings of one run."""

    def __init__(self, policy: Policy, rules: Sequence[Rule] = RULES) -> None:
        self._policy = policy
        self._rules = rules
        self._cases: dict[_Key, _Case] = {}
        self.abstentions: tuple[Abstention, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Give active findings first, then the gravest, then the costliest; past ones follow."""
        public = [case.finding for case in self._cases.values() if case.is_public]
        return tuple(sorted(public, key=lambda f: (not f.is_active, -f.severity.order, -f.share_of_time, f.code)))

    def evaluate(self, evidence: Evidence) -> None:
        """Look once."""
        drafts: dict[_Key, Draft] = {}
        abstentions = []
        for rule in self._rules:
            verdict = rule(evidence, self._policy)
            if isinstance(verdict, Abstention):
                abstentions.append(verdict)
            else:
                drafts.update({(draft.code, draft.ranks): draft for draft in verdict})
        self.abstentions = tuple(abstentions)
        first, last = int(evidence.window.steps_S[0]), int(evidence.window.steps_S[-1])
        for key, draft in drafts.items():
            self._note_held(key, draft, first, last)
        for key in list(self._cases.keys() - drafts.keys()):
            self._note_missed(key)
        self._forget_oldest()

    def _note_held(self, key: _Key, draft: Draft, first_step: int, last_step: int) -> None:
        case = self._cases.get(key)
        if case is None:
            finding = _finding(draft, first_step if draft.since_step is None else draft.since_step, last_step)
            self._cases[key] = _Case(finding)
            return
        case.num_held += 1
        case.num_missed = 0
        case.finding = _finding(draft, case.finding.first_step, last_step)
        case.is_public |= case.num_held >= self._policy.looks_to_appear

    def _note_missed(self, key: _Key) -> None:
        case = self._cases[key]
        case.num_held = 0
        case.num_missed += 1
        if not case.is_public:
            del self._cases[key]
        elif case.num_missed >= self._policy.looks_to_go:
            case.finding = replace(case.finding, is_active=False)

    def _forget_oldest(self) -> None:
        past = [key for key, case in self._cases.items() if not case.finding.is_active]
        past.sort(key=lambda key: self._cases[key].finding.last_step)
        for key in past[: max(0, len(self._cases) - self._policy.max_findings)]:
            del self._cases[key]


def _finding(draft: Draft, first_step: int, last_step: int) -> Finding:
    return Finding(
        code=draft.code,
        severity=draft.severity,
        ranks=draft.ranks,
        nodes=draft.nodes,
        share_of_time=draft.share_of_time,
        evidence=draft.evidence,
        why=draft.why,
        next_step=draft.next_step,
        first_step=first_step,
        last_step=last_step,
    )
