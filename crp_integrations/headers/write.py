"""Records of headers written as names and values, each value checked against its rule."""

from __future__ import annotations

from collections.abc import Mapping

from crp_integrations.headers import fields, values
from crp_integrations.headers.fields import Field
from crp_integrations.headers.records import RequestHeaders, ResponseHeaders


def write(said: ResponseHeaders) -> dict[str, str]:
    """A response's header values by name; None has no header.

    Raises:
        HeaderSyntaxError: a value does not follow its header's grammar.
    """
    return _written(said, fields.RESPONSE)


def ask(asked: RequestHeaders) -> dict[str, str]:
    """A request's header values by name, for a call to another gateway; None has no header.

    No header of these may reach a model's provider.

    Spec: related facts §2, §3

    Raises:
        HeaderSyntaxError: a value does not follow its header's grammar.
    """
    return _written(asked, fields.REQUEST)


def _written(
    record: RequestHeaders | ResponseHeaders, table: Mapping[str, Field]
) -> dict[str, str]:
    written = {}
    for name, form in table.items():
        value = getattr(record, name)
        # An empty list, and a cache header without a directive, say nothing either.
        if value is None or value == ():
            continue
        text = form.write(value)
        if text or not isinstance(value, str):
            written[form.name] = values.check(form.name, text)
    return written
