"""Pydantic models of the mappings in a document, and pydantic's errors as problems with their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import pydantic
from pydantic import GetJsonSchemaHandler
from pydantic_core import InitErrorDetails

from simcluster.errors import nearest
from simcluster.units import UnitError

T = TypeVar("T")


class WrongValue(ValueError):
    """A value, or with *at_key* its key, that is not as *expected*; *found* defaults to the value."""

    def __init__(self, expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        self.expected, self.found, self.at_key = expected, found, at_key
        super().__init__(expected)


def fault(*place: str | int, expected: str, found: str | None = None, at_key: bool = False) -> InitErrorDetails:
    """Return a `WrongValue` at *place* as a detail of pydantic's errors."""
    wrong = WrongValue(expected, found, at_key=at_key)
    return InitErrorDetails(type="value_error", loc=place, input=None, ctx={"error": wrong})


MOST_FOREIGN = 5
"""Keys that are listed one by one if not a single one of a mapping is known."""


def refuse(faults: Sequence[Any]) -> None:
    """Raise all *faults* at once, if any; a validator thereby reports places below its own."""
    if faults:
        raise pydantic.ValidationError.from_exception_data("document", list(faults))


def tried(
    faults: list[Any], parse: Callable[[Any], T], value: object, *place: str | int, at_key: bool = False
) -> T | None:
    """Return *parse*'s result for *value*, or None after adding its errors, below *place*, to *faults*."""
    try:
        return parse(value)
    except pydantic.ValidationError as error:
        faults += [{**detail, "loc": (*place, *detail["loc"])} for detail in error.errors(include_url=False)]
    except (WrongValue, UnitError) as error:
        faults.append(fault(*place, expected=error.expected, found=error.found, at_key=at_key))
    return None


class Keys:
    """The keys of a mapping: all *names*, and those *required*."""

    def __init__(self, names: Iterable[str], required: Iterable[str] = (), mapping: str = "") -> None:
        self.names, self._absent, self.mapping = tuple(names), dict.fromkeys(required), mapping
        self._set = frozenset(self.names)

    def unknown(self, key: str) -> InitErrorDetails:
        """Return the fault of an unknown *key*."""
        return fault(key, found="unknown key", expected=nearest(key, self.names), at_key=True)

    def check(
        self,
        data: Any,
        make: Callable[[Any], T],
        faults: Callable[[Mapping[str, Any]], Iterable[Any]],
        unknown: Callable[[str], InitErrorDetails],
    ) -> T:
        """Return *make*'s result for *data*, or raise all faults. A key without a value counts as absent.

        *faults* yields those of keys that contradict each other, *unknown* returns that of an unknown key.
        """
        if not isinstance(data, dict):
            raise WrongValue(self.mapping or f"a mapping with {', '.join(self.names)}")
        if len(data) > MOST_FOREIGN and self._set.isdisjoint(data):  # another kind of file, which may be secret
            raise WrongValue(self.mapping or f"a mapping with {', '.join(self.names)}", f"{len(data)} other keys")
        found = [] if data.keys() <= self._set else [unknown(key) for key in data if key not in self._set]
        given = {key: value for key, value in data.items() if value is not None}
        made: Any = None
        try:
            # A required key that is absent is validated as None: its validator knows the expectation.
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
    """Describes the expected mapping, for errors where there is none."""
    rules: ClassVar[dict[str, Any]] = {}
    """Keywords of JSON schema that say what `faults` checks, as far as they can."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        cls.known = Keys(fields, [key for key, field in fields.items() if field.is_required()], cls.mapping)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of `read`: no unknown key, and one without a value counts as absent."""
        schema = handler.resolve_ref_schema(handler(core))
        for key in schema["properties"].keys() - set(schema.get("required", ())):
            schema["properties"][key] = {"anyOf": [schema["properties"][key], {"type": "null"}]}
        return schema | {"additionalProperties": False, **cls.rules}

    @classmethod
    def unknown(cls, key: str) -> InitErrorDetails:
        return cls.known.unknown(key)

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        """Yield the faults of keys that contradict each other. *given* are the keys with a value, not converted."""
        return ()

    @classmethod
    def read(cls, data: object) -> Self:
        """Return the model of *data*. Raise pydantic's ValidationError, or WrongValue, with all faults."""
        make: Callable[[Any], Self] = cls.__pydantic_validator__.validate_python
        return cls.known.check(data, make, cls.faults, cls.unknown)


def block_of(made: type) -> type[Block]:
    """Return the block for the dataclass *made*: its keys are the annotated fields."""
    hints = get_type_hints(made, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(made)
    }
    return pydantic.create_model(made.__name__, __base__=Block, **fields)
