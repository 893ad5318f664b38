"""What chat templates find around them, as transformers has it, made safe: for lesson 20's sandbox of jinja2."""

import json
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import SecurityError
from jinja2.utils import Namespace


class Generation(Extension):
    """The tag {% generation %} of Hugging Face's templates, around what the assistant says.

    transformers finds the words to learn from by it. Here it changes nothing: what is inside is written.
    """

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        """What jinja2 calls at the tag: all up to endgeneration, as it is."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class PlainNamespace(Namespace):
    """{% set ns = namespace(…) %} without names that begin with _, so that it cannot pass for a str."""

    def __init__(self, **attributes: Any):
        super().__init__()
        for name, value in attributes.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace must not hold {name}")
        super().__setitem__(name, value)


def to_json(x: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """The filter tojson of chat templates: JSON as json.dumps writes it, not HTML's."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    """What a template calls to refuse messages, such as two turns of the user in a row."""
    raise TemplateError(message)


def strftime_now(form: str) -> str:
    """Today's date, as a template wants it written."""
    return datetime.now().strftime(form)
