"""Push a folder with weights and card to a hub, through huggingface_hub if it is installed.

The account and its token are huggingface_hub's business: nothing here reads or stores one.
"""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import expected
from harness.reports.export.card import CARD

# What a model's folder holds for readers; checkpoints and caches stay here.
_SENT = [CARD, "*.safetensors", "*.pt", "*.pth", "run.json", "history.csv", "*.py"]


def push(folder: Path, repository: str, private: bool = False) -> str:
    """Create the repository if need be and upload the folder; the address of what was uploaded."""
    if not (folder / CARD).is_file():
        remedy = "write it first: generalist-bench export card"
        raise expected(f"a model card in {folder}", f"no {CARD}", remedy)
    try:
        from huggingface_hub import HfApi
    except ImportError:
        remedy = "install it: pip install huggingface_hub"
        raise expected("the package huggingface_hub", "none", remedy) from None
    api = HfApi()
    try:
        api.create_repo(repo_id=repository, repo_type="model", private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository,
            repo_type="model",
            folder_path=str(folder),
            allow_patterns=_SENT,
            commit_message="Weights and card from Generalist Bench",
        )
    except Exception as error:  # no network, no token, no right to write: its own words say which
        found = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        remedy = "log in with `hf auth login`, or try again"
        raise expected(f"the hub to take {repository}", found, remedy) from None
    return str(done)
