"""The recipe file to start from, and the JSON Schema of recipe files: both from the types in `recipe`."""

from __future__ import annotations

import msgspec

from loadgen.corpus.recipe import Recipe


def schema() -> bytes:
    """The JSON Schema of a recipe file, as it ships beside the recipes."""
    found = msgspec.json.schema(Recipe)
    # A file may leave the name out.
    found["$defs"]["Recipe"]["required"] = []
    return msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=2) + b"\n"


def template(url: str, name: str) -> str:
    """A recipe file over `url` with every key, its default and what it means."""
    lines = ["#:schema recipe.schema.json", f"name = {_toml(name)}", 'description = ""']
    recipe = msgspec.inspect.type_info(Recipe)
    assert isinstance(recipe, msgspec.inspect.StructType)
    for table in recipe.fields:
        if not isinstance(table.type, msgspec.inspect.StructType):
            continue
        lines += ["", f"# {(table.type.cls.__doc__ or '').strip()}", f"[{table.name}]"]
        for field in table.type.fields:
            assert isinstance(field.type, msgspec.inspect.Metadata)
            described = (field.type.extra_json_schema or {})["description"]
            value = url if (table.name, field.name) == ("source", "url") else field.default
            if value is msgspec.NODEFAULT:
                value = field.default_factory()
            if value is None:
                lines.append(f'# {field.name} = ""  # {described}')
            else:
                lines.append(f"{field.name} = {_toml(value)}  # {described}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A string, whole number, boolean or empty list as TOML: for these, TOML is JSON."""
    return msgspec.json.encode(value).decode()
