"""Label and field selectors, with the grammar and the error texts of the real API server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from localkube.status import ApiError, Object, bad_request

Labels = Mapping[str, str]

_SET_TERM = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUALS_TERM = re.compile(r"^\s*([^\s!=,()<>]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS_TERM = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


@dataclass(frozen=True)
class Requirement:
    """One term: key, operator and values as in `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


@dataclass(frozen=True)
class LabelSelector:
    """Requirements that all must hold; no requirement selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


def _split(text: str) -> list[str]:
    return [term for term in re.split(r",(?![^(]*\))", text) if term.strip()]


@lru_cache(maxsize=256)
def parse_labels(text: str) -> LabelSelector:
    """Parse `a=b,c!=d,e in (f,g),h,!i`. Raises ApiError 400 for anything else."""
    requirements = []
    for term in _split(text):
        if found := _SET_TERM.match(term):
            values = tuple(sorted(value.strip() for value in found[3].split(",")))
            requirements.append(Requirement(found[1], "In" if found[2] == "in" else "NotIn", values))
        elif found := _EQUALS_TERM.match(term):
            requirements.append(Requirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],)))
        elif found := _EXISTS_TERM.match(term):
            requirements.append(Requirement(found[2], "DoesNotExist" if found[1] else "Exists"))
        else:
            raise _unparsable(term)
    return LabelSelector(tuple(requirements))


def _unparsable(term: str) -> ApiError:
    words = term.split()
    found = words[1] if len(words) > 1 else term.strip()
    return bad_request(f"unable to parse requirement: found '{found}', expected: in, notin, =, ==, !=, gt, lt")


def from_object(selector: Object | None) -> LabelSelector:
    """A `metav1.LabelSelector` of a spec (matchLabels, matchExpressions)."""
    selector = selector or {}
    requirements = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    requirements += [
        Requirement(term["key"], term["operator"], tuple(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return LabelSelector(tuple(requirements))


_FIELDS: dict[str, str] = {
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName status.phase status.podIP",
    "events": "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent type",
    "secrets": "type",
    "namespaces": "status.phase",
}
"""Selectable fields by kind beside metadata.name and metadata.namespace (which every kind has)."""


def _dig(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


@dataclass(frozen=True)
class FieldSelector:
    """Equality terms over the selectable fields of one kind."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, obj: Object) -> bool:
        return all((_dig(obj, path) == value) == equal for path, value, equal in self.terms)


@lru_cache(maxsize=256)
def parse_fields(resource: str, text: str) -> FieldSelector:
    """Parse `metadata.name=x,status.phase!=Running`. Raises ApiError 400 for a field this kind does not offer."""
    terms = []
    for term in _split(text):
        found = re.match(r"^\s*([^!=]+?)\s*(==|=|!=)\s*(.*?)\s*$", term)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if found[1] not in ("metadata.name", "metadata.namespace", *_FIELDS.get(resource, "").split()):
            raise bad_request(f"field label not supported: {found[1]}")
        terms.append((found[1], found[3], found[2] != "!="))
    return FieldSelector(tuple(terms))


Matcher = Callable[[Object], bool]


def matcher(resource: str, labels: str | None, fields: str | None) -> Matcher | None:
    """One predicate over whole objects for both selectors, or None when everything matches."""
    label_selector = parse_labels(labels) if labels else None
    field_selector = parse_fields(resource, fields) if fields else None
    if not label_selector and not field_selector:
        return None

    def matches(obj: Object) -> bool:
        if label_selector and not label_selector.matches(obj["metadata"].get("labels")):
            return False
        return field_selector is None or field_selector.matches(obj)

    return matches


def to_text(selector: Object) -> str:
    """The `matchLabels` of a selector as text: `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items()))
