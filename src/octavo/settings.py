"""The knobs that are not flags: each once, with type, default, environment name and meaning.

This is the only reader of the environment, and of the settings file, whose tables have values for
the flags of commands (`cli/_settings.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from octavo.errors import SettingError
from octavo.record import dataclass

ISA_LEVELS = ("baseline", "avx2", "avx_vnni", "avx512", "neon")


@dataclass(frozen=True)
class Settings:
    """Values in force. `from_environment` is how programs get them; tests build their own."""

    models_dir: Path  # OCTAVO_MODELS: where downloaded models are kept
    cache_dir: Path  # OCTAVO_CACHE: measurements and other things that can be made again
    isa: str  # OCTAVO_ISA: highest instruction-set level to use; "" = the processor's best
    threads: int  # OCTAVO_THREADS: worker threads; 0 = one per physical core
    offline: bool  # OCTAVO_OFFLINE: never reach for the network
    hf_endpoint: str = "https://huggingface.co"  # HF_ENDPOINT: Hugging Face, or a mirror of it
    ms_endpoint: str = "https://modelscope.cn"  # MODELSCOPE_ENDPOINT: the same for ModelScope
    api_key: str = field(default="", repr=False)  # OCTAVO_API_KEY: what `serve` asks clients for
    hf_token: str = field(default="", repr=False)  # HF_TOKEN: for private and gated models

    @classmethod
    def from_environment(cls) -> Settings:
        """Read the environment.

        Raises:
            SettingError: a variable has a value outside its range.
        """
        data = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        return cls(
            models_dir=Path(os.environ.get("OCTAVO_MODELS", data / "octavo" / "models")),
            cache_dir=Path(os.environ.get("OCTAVO_CACHE", cache / "octavo")),
            isa=_choice("OCTAVO_ISA", ISA_LEVELS),
            threads=_whole_number("OCTAVO_THREADS", 0, 1024),
            offline=_whole_number("OCTAVO_OFFLINE", 0, 1) == 1,
            hf_endpoint=os.environ.get("HF_ENDPOINT") or cls.hf_endpoint,
            ms_endpoint=os.environ.get("MODELSCOPE_ENDPOINT") or cls.ms_endpoint,
            api_key=os.environ.get("OCTAVO_API_KEY", ""),
            hf_token=os.environ.get("HF_TOKEN", ""),
        )


def settings_path() -> Path:
    """The settings file: OCTAVO_SETTINGS, or octavo/settings.toml in the configuration folder."""
    given = os.environ.get("OCTAVO_SETTINGS")
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(given) if given else folder / "octavo" / "settings.toml"


def tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a settings file, by the names of commands; none if there is no file.

    Raises:
        SettingError: it cannot be read, is no TOML, or has something outside of tables.
    """
    try:
        with path.open("rb") as file:
            import tomllib  # here, as most people have no such file

            found = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}", 'Write it as TOML: [serve], then host = "..."'
        ) from error
    for key, value in found.items():
        if not isinstance(value, dict):
            raise SettingError(
                f"{path}: {key!r} stands outside of a table", "Put it under [serve], [run] ..."
            )
    return found


def calm_blas() -> None:
    """Let NumPy start without a thread for each core; call it before NumPy is imported.

    Its linear algebra serves the plain `reference` back end alone, and its threads would wait
    busily for a tenth of a second, on the cores that read the weights meanwhile. `os.environ` stays
    as it is, and so what `environment` gives to other programs.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        os.putenv("OPENBLAS_NUM_THREADS", "1")


def grow_in_place() -> None:
    """Let torch's blocks of video memory grow in place; call it before torch is imported.

    What one shape of step has freed then serves the next one too: of 8 GB that was 290 MB more for
    experts on an H200.
    """
    if sys.platform == "linux":  # elsewhere torch does not know it
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


def environment(variables: Mapping[str, str], unset: Iterable[str] = ()) -> dict[str, str]:
    """The environment of this process with changes: what another program is started with."""
    without = set(unset)
    return {k: v for k, v in os.environ.items() if k not in without} | dict(variables)


def _choice(name: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(name, "")
    if value and value not in allowed:
        raise SettingError(f"{name} is {value!r}", f"Use one of: {', '.join(allowed)}.")
    return value


def _whole_number(name: str, low: int, high: int) -> int:
    text = os.environ.get(name, "") or str(low)
    if not text.isdecimal() or not low <= int(text) <= high:
        raise SettingError(f"{name} is {text!r}", f"Use a whole number from {low} to {high}.")
    return int(text)
