"""Parse XML that may come from anywhere: no entities, nothing from outside the file."""

from __future__ import annotations

from typing import Any

from simcluster.errors import UsageError

MOST_TAGS = 500_000


def parse_xml(text: str, file: str, what: str) -> Any:
    """Return the root element of XML *text*, without namespaces in its tags.

    *what* is the form's name in errors. Raise UsageError for wrong XML and for entities, which can
    make a small file expand into a huge one.
    """
    if text.count("<") > MOST_TAGS:
        raise UsageError(what, f"{text.count('<'):,} tags", f"at most {MOST_TAGS:,}", file)
    from defusedxml import DefusedXmlException, ElementTree

    try:
        root = ElementTree.fromstring(text)
    except DefusedXmlException:
        raise UsageError(what, "an entity", f"{what} without entities and declarations of them", file) from None
    except ElementTree.ParseError as error:
        raise UsageError(what, "", f"{what}: {error}", file, *error.position) from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
    return root
