"""What a file that is not GGUF seems to be, so that the error can say what to do.

llama.cpp only prints the four bytes it found; most reports of "invalid magic" are one of these.
"""

from __future__ import annotations

__all__ = ["looks_like"]

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs",
        "a git-lfs pointer, not the model itself: run `git lfs pull`, or download the file "
        "through the site's download link",
    ),
    (
        b"FUGG",
        "a GGUF file with its bytes reversed: fetch or convert it again",
    ),
    (b"PK\x03\x04", "a zip archive or a PyTorch checkpoint: convert it to GGUF first"),
    (b"\x80\x02", "a Python pickle (old PyTorch checkpoint): convert it to GGUF first"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive: unpack it first"),
    (b"%PDF", "a PDF document"),
    (
        b"Entry not found",
        "an error message of a download site: check the model's name and fetch it again",
    ),
)

_LEGACY = {b"tjgg": "ggjt", b"lmgg": "ggml", b"fmgg": "ggmf", b"algg": "ggla"}


def looks_like(head: bytes) -> str | None:
    """Guess what kind of file starts with these bytes.

    Parameters
    ----------
    head : bytes
        The first bytes of the file, some 64 or more.

    Returns
    -------
    str or None
        What it is and what to do; None where nothing is recognised.
    """
    for signature, text in _SIGNATURES:
        if head.startswith(signature):
            return text
    if head[:4] in _LEGACY:
        return (
            f"a {_LEGACY[head[:4]]} file, llama.cpp's format before GGUF (2023): "
            "fetch the model as GGUF, or convert it from its original weights"
        )
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "a web page: a login or error page was saved; use the site's direct download link"
    if head[8:10] == b'{"':
        return "a safetensors file: convert it to GGUF first"
    if start.startswith((b'{"', b"{'", b"{\n", b"{ ")):
        return "JSON text: an error message or a configuration file, not the model"
    if head and not any(head):
        return "nothing but zeros: an unfinished download; fetch it again"
    return None
