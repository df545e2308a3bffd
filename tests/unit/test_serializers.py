"""JSON that gives back exactly what it was given, or refuses it and says where."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_localqueue import SerializationError, UndecodablePayload
from django_localqueue.serializers import JSONSerializer

serializer = JSONSerializer()

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=())),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Named(dict[str, Any]):
    """A subclass of what JSON has."""


@given(json_values)
def test_what_json_has_comes_back_the_same(value: Any) -> None:
    back = serializer.loads(serializer.dumps(value))
    assert back == value
    assert repr(back) == repr(value)  # 1, 1.0 and True are equal and not the same


@given(json_values)
def test_the_bytes_are_json_that_others_can_read(value: Any) -> None:
    assert json.loads(serializer.dumps(value).decode()) == value


def test_text_is_stored_readable_and_without_spaces() -> None:
    assert serializer.dumps({"näme": ["ü", 1]}) == '{"näme":["ü",1]}'.encode()


def test_a_lone_surrogate_is_kept_by_an_escape() -> None:
    assert serializer.loads(serializer.dumps("a\ud800b")) == "a\ud800b"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, 2), "data is a tuple, which JSON would turn into a list; use a list."),
        ({"a": [1, (2,)]}, "data['a'][1] is a tuple"),
        ({1: "x"}, "data has the key 1, and JSON has only text keys; use str(key)."),
        ({"a": {None: 1}}, "data['a'] has the key None"),
        ({1, 2}, "data is a set"),
        (b"x", "data is a bytes"),
        (datetime.datetime(2020, 1, 1), "data is a datetime"),
        (decimal.Decimal("1.1"), "data is a Decimal"),
        ({"id": uuid.UUID(int=1)}, "data['id'] is a UUID"),
        (float("nan"), "data is nan, which JSON does not have"),
        ([float("inf")], "data[0] is inf"),
        (Color.RED, "data is the enum member <Color.RED: 'red'>; pass its .value."),
        (Level.HIGH, "data is the enum member"),
        (object, "data is a type"),
        (print, "data is a builtin_function_or_method"),
    ],
)
def test_what_json_would_change_is_refused_and_named(value: Any, text: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serializer.dumps(value)
    assert text in str(caught.value)


def test_a_model_instance_is_refused_with_the_way_to_pass_it() -> None:
    from django.contrib.auth.models import User

    with pytest.raises(SerializationError, match="a User model instance; pass its primary key"):
        serializer.dumps({"user": User(pk=3)})


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(SerializationError, match="nested too deeply, or contains itself"):
        serializer.dumps(value)


def test_subclasses_of_what_json_has_are_carried_as_that() -> None:
    assert serializer.loads(serializer.dumps(Named(a=1))) == {"a": 1}


def test_a_subclass_of_dict_is_looked_into() -> None:
    with pytest.raises(SerializationError, match="is a tuple"):
        serializer.dumps(Named(a=(1,)))


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"nope", b"[" * 100_000, b"{} {}"])
def test_bytes_that_are_no_json_raise_undecodable_payload(payload: bytes) -> None:
    with pytest.raises(UndecodablePayload, match="not valid JSON"):
        serializer.loads(payload)
