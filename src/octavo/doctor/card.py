"""Graphics card, driver, torch and triton."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.memory import text

_LEAST_CAPABILITY = (7, 5)  # Turing
_INSTALL = 'Install what the card needs: pip install "octavo[gpu]".'


def check(facts: Facts) -> Finding:
    """A card that is there should be usable. None is no fault."""
    gpus = facts.hardware.gpus
    if not gpus:
        if not facts.has_nvidia_device:
            return Finding("ok", "no NVIDIA card; the processor does it all")
        return Finding(
            "wrong",
            f"a card is here, but {facts.gpu_fault or 'the driver lists none'}",
            "Install or reinstall NVIDIA's driver, restart, and try nvidia-smi.",
        )
    gpu = max(gpus, key=lambda card: card.free_bytes)
    major, minor = gpu.capability
    named = f"{gpu.name}, {text(gpu.total_bytes)}, driver {gpu.driver or 'not known'}"
    if (0, 0) < gpu.capability < _LEAST_CAPABILITY:
        return Finding(
            "note",
            f"{named}: its generation ({major}.{minor}) is older than Turing (7.5)",
            "It cannot be used; the processor does it all.",
        )
    missing = [name for name, got in (("torch", facts.torch), ("triton", facts.triton)) if not got]
    if missing:
        return Finding("note", f"{named}, but no {' and no '.join(missing)}", _INSTALL)
    if "+cpu" in facts.torch:
        return Finding(
            "wrong",
            f"{named}, but torch {facts.torch} is built without CUDA",
            "Install a build with CUDA: pip install --force-reinstall torch.",
        )
    return Finding("ok", f"{named}, torch {facts.torch}, triton {facts.triton}")
