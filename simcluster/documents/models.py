"""Pydantic models of the mappings in a document.

Pydantic's errors become problems with a place in the document.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import pydantic
from pydantic import GetJsonSchemaHandler
from pydantic_core import InitErrorDetails

from simcluster.spelling import nearest
from simcluster.units import UnitError

T = TypeVar("T")

Given = Mapping[str, Any]
"""Key -> value, as in the document, of each key in a mapping that has a value."""

Faults = Iterable[InitErrorDetails]
"""Wrong values, each in the form that `fault` returns: a detail of a pydantic error."""


class WrongValue(ValueError):
    """Raised for a value that is not as *expected*; *found* describes the value in the error.

    By default, *found* is the value itself. If *at_key*, the key is wrong instead.
    """

    def __init__(self, expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        self.expected = expected
        self.found = found
        self.at_key = at_key
        super().__init__(expected)


def fault(*place: str | int, expected: str, found: str | None = None, at_key: bool = False) -> InitErrorDetails:
    """Return a detail of a pydantic error: a `WrongValue` at *place*, the path of its keys."""
    wrong = WrongValue(expected, found, at_key=at_key)
    return InitErrorDetails(type="value_error", loc=place, input=None, ctx={"error": wrong})


MOST_FOREIGN = 5
"""Limit on the keys that an error lists one by one if a mapping has no known key at all."""


def refuse(faults: Sequence[Any]) -> None:
    """Raise one ValidationError with all *faults*, if any, each at a place within the value."""
    if faults:
        raise pydantic.ValidationError.from_exception_data("document", list(faults))


def tried(
    faults: list[Any], parse: Callable[[Any], T], value: object, *place: str | int, at_key: bool = False
) -> T | None:
    """Return *parse*'s result for *value*; if it fails, add its errors to *faults*, below *place*,
    and return None.
    """
    try:
        return parse(value)
    except pydantic.ValidationError as error:
        faults += [{**detail, "loc": (*place, *detail["loc"])} for detail in error.errors(include_url=False)]
    except (WrongValue, UnitError) as error:
        faults.append(fault(*place, expected=error.expected, found=error.found, at_key=at_key))
    return None


class Keys:
    """The keys of a mapping: *names* are all allowed keys, *required* are the mandatory ones.

    *mapping* describes the expected mapping in errors; by default, the errors list *names*.
    """

    def __init__(self, names: Iterable[str], required: Iterable[str] = (), mapping: str = "") -> None:
        self.names = tuple(names)
        self._absent = dict.fromkeys(required)
        self.mapping = mapping
        self._set = frozenset(self.names)

    def unknown(self, key: str) -> InitErrorDetails:
        """Return the fault of an unknown *key*."""
        return fault(key, found="unknown key", expected=nearest(key, self.names), at_key=True)

    def check(
        self,
        data: Any,
        make: Callable[[Any], T],
        faults: Callable[[Given], Iterable[Any]],
        unknown: Callable[[str], InitErrorDetails],
    ) -> T:
        """Return *make*'s result for *data*, or raise all faults at once.

        A key without a value counts as absent.

        *faults* yields the faults of keys that contradict each other, *unknown* returns the fault
        of an unknown key.
        """
        if not isinstance(data, dict):
            raise WrongValue(self.mapping or f"a mapping with {', '.join(self.names)}")
        # No known key at all: this is another kind of file, perhaps a secret one, so do not repeat
        # its keys.
        if len(data) > MOST_FOREIGN and self._set.isdisjoint(data):
            raise WrongValue(self.mapping or f"a mapping with {', '.join(self.names)}", f"{len(data)} other keys")
        found = [] if data.keys() <= self._set else [unknown(key) for key in data if key not in self._set]
        given = {key: value for key, value in data.items() if value is not None}
        made: Any = None
        try:
            # A required key that is absent is validated as None, so that its validator says what it
            # expects.
            made = make(self._absent | given if self._absent else given)
        except pydantic.ValidationError as error:
            found += error.errors(include_url=False)  # type: ignore[arg-type]
        found += faults(given)
        if found:
            refuse(found)
        return made  # type: ignore[no-any-return]


class Block(pydantic.BaseModel):
    """A mapping whose keys are the fields of a model."""

    model_config = pydantic.ConfigDict(frozen=True)
    known: ClassVar[Keys]
    mapping: ClassVar[str] = ""
    """A description of the expected mapping, for the error if a value is not a mapping."""
    rules: ClassVar[dict[str, Any]] = {}
    """Keywords of JSON schema that express what `faults` checks, as far as JSON schema can."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        cls.known = Keys(fields, [key for key, field in fields.items() if field.is_required()], cls.mapping)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of `read`: it allows no unknown key, and null for optional keys."""
        schema = handler.resolve_ref_schema(handler(core))
        for key in schema["properties"].keys() - set(schema.get("required", ())):
            schema["properties"][key] = {"anyOf": [schema["properties"][key], {"type": "null"}]}
        return schema | {"additionalProperties": False, **cls.rules}

    @classmethod
    def unknown(cls, key: str) -> InitErrorDetails:
        return cls.known.unknown(key)

    @classmethod
    def faults(cls, given: Given) -> Faults:
        """Yield the faults of keys that contradict each other.

        *given* has the keys with a value, which is not converted yet.
        """
        return ()

    @classmethod
    def read(cls, data: object) -> Self:
        """Return the model of *data*. Raise pydantic's ValidationError, or WrongValue, with all faults."""
        make: Callable[[Any], Self] = cls.__pydantic_validator__.validate_python
        return cls.known.check(data, make, cls.faults, cls.unknown)


def block_of(made: type) -> type[Block]:
    """Return the block that reads the dataclass *made*: its keys are the annotated fields."""
    hints = get_type_hints(made, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(made)
    }
    return pydantic.create_model(made.__name__, __base__=Block, **fields)
