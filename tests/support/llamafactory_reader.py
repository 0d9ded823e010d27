"""LLaMA-Factory's own converter and templates, without the parts that need media packages.

`llamafactory.data` imports its loader and collators, which need every training dependency. The
converter, the formatters and the templates are loaded from the package's files as they are;
`torchaudio`, which no text ever reaches, is stood in for while the templates are loaded.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


@cache
def converter() -> Any:
    """`SharegptDatasetConverter` as LLaMA-Factory sets it up by default, with a `tools` column."""
    _prepare()
    parser = import_module("llamafactory.data.parser")
    attributes = parser.DatasetAttr("file", "rows.jsonl")
    attributes.join({"formatting": "sharegpt", "columns": COLUMNS})
    module = import_module("llamafactory.data.converter")
    return module.get_dataset_converter("sharegpt", attributes, None)


COLUMNS = {"messages": "conversations", "tools": "tools"}
"""The columns of an entry in `dataset_info.json`."""


def render(row: dict[str, Any], template: str, tokenizer: Any) -> list[tuple[str, str]]:
    """Each prompt with the answer that is trained on, as a template writes them."""
    _prepare()
    templates = import_module("llamafactory.data.template").TEMPLATES
    read = converter()(row)
    pairs = templates[template].encode_multiturn(
        tokenizer, read["_prompt"] + read["_response"], read["_system"], read["_tools"]
    )
    return [(tokenizer.decode(asked), tokenizer.decode(given)) for asked, given in pairs]


@cache
def _prepare() -> None:
    root = import_module("llamafactory")
    shell = ModuleType("llamafactory.data")
    shell.__path__ = [str(Path(root.__path__[0]) / "data")]
    sys.modules.setdefault("llamafactory.data", shell)
    import_module("llamafactory.data.converter")  # and with it transformers, as it really is
    stand_in = ModuleType("torchaudio")
    stand_in.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules["torchaudio"] = stand_in
    try:
        import_module("llamafactory.data.template")
    finally:
        del sys.modules["torchaudio"]
