"""Reads the config file of `horovodrun`, with PyYAML if it is installed. Otherwise a parser for the subset of YAML that
these files need: sections with one value per line. Never executes content of the file."""

import re
from typing import Any, Dict, Optional

_ENTRY = re.compile(r"(?P<indent> *)(?P<key>[\w.-]+)\s*:(?:\s+(?P<value>.*))?$")
_QUOTED = re.compile(r"""(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>[^"\\]*)")\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
    "null": None,
    "~": None,
    "": None,
}


def load(path: str) -> Dict[str, Any]:
    """Loads sections and values."""
    with open(path) as file:
        text = file.read()
    try:
        import yaml
    except ImportError:
        return parse(text, path)
    config = yaml.safe_load(text) or {}
    if not isinstance(config, dict):
        raise ValueError(f"The config file {path} is not a list of sections, such as 'params:' and 'timeline:'")
    return config


def parse(text: str, path: str = "config") -> Dict[str, Any]:
    """Parser without PyYAML."""
    config: Dict[str, Any] = {}
    section: Optional[str] = None
    indent_of_section: Optional[int] = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.rstrip()
        if not line.strip() or line.lstrip().startswith("#") or line in ("---", "..."):
            continue
        entry = _ENTRY.match(line)
        indent = len(entry["indent"]) if entry else 0
        if entry and indent == 0:
            section, indent_of_section = entry["key"], None
            config[section] = _value(entry["value"], path, number)
            continue
        indent_of_section = indent if indent_of_section is None else indent_of_section
        is_inside = section is not None and (config[section] is None or isinstance(config[section], dict))
        if not entry or not is_inside or indent != indent_of_section:
            raise _not_understood(path, number, line)
        assert section is not None
        config[section] = config[section] or {}
        config[section][entry["key"]] = _value(entry["value"], path, number)
    return config


def _value(text: Optional[str], path: str, number: int) -> Any:
    text = (text or "").strip()
    quoted = _QUOTED.match(text)
    if quoted:
        return quoted["double"] if quoted["single"] is None else quoted["single"].replace("''", "'")
    text = _COMMENT.sub("", text)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text[0] in "[{&*!|>'\"%@`":
        raise _not_understood(path, number, text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _not_understood(path: str, number: int, line: str) -> ValueError:
    return ValueError(
        f"{path}, line {number}: {line.strip()!r} is not understood. Without PyYAML horovodrun reads sections with"
        " one value per line; install PyYAML to use more of YAML"
    )
